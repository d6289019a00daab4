"""The thread API's table as one page for the authors of clients: every method and notification with its fields, by
resource. The page comes back as text.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Final

from protocol.export.guide import block, fields_list, line, types
from protocol.export.schemas import Schema, params_name, result_name
from protocol.structs import Json
from protocol.v2.methods import TABLE

_HEAD: Final = """\
# The thread API: reference

Every method and notification with its fields, made of the table that the server routes by
(`python -m protocol.export`). [threads.md](threads.md) says how they belong together: runs, the order of
notifications, rules. The same as JSON Schemas is in [../schema/v2](../schema/v2).

Requests begin with the fields that they need, with invented values. An error has a `code`, a `message`, and `data` with
a `kind` for programs: [embedding.md](embedding.md#errors) lists them. What is *experimental* is refused without the
capability `experimentalApi`.
"""

_VALUES: Final[Mapping[str, Json]] = {
    "threadId": "01a1c7b0-8d3e-7a52-9c1f-5e0b6d2f4a10",
    "turnId": "01a1c7b1-2f60-7c11-8e44-9a7d3c5b1e22",
    "expectedTurnId": "01a1c7b1-2f60-7c11-8e44-9a7d3c5b1e22",
    "cwd": "/home/me/project",
    "path": "/home/me/project/notes.md",
    "input": [{"type": "text", "text": "Does greet.sh work?"}],
}
"""Values of fields that would say nothing by their type."""


def page(definitions: Mapping[str, Schema]) -> str:
    """Return the whole page, in Markdown."""
    return re.sub(r"\n{3,}", "\n\n", "\n".join(_parts(definitions))).rstrip() + "\n"


def _parts(definitions: Mapping[str, Schema]) -> Iterator[str]:
    yield _HEAD
    yield "## Requests of the client\n"
    for resource, methods in groupby(sorted(TABLE.client_requests), key=_resource):
        yield f"### {resource}\n"
        for method in methods:
            row = TABLE.client_requests[method]
            mark = " *Experimental.*" if row.experimental else ""
            yield f"#### `{method}`\n\n{row.doc}{mark}\n"
            yield block(line({"id": 1, "method": method, "params": _example(definitions, params_name(row))}))
            yield fields_list(definitions, params_name(row), row.params, "Parameters")
            yield fields_list(definitions, result_name(row), row.result, "Result")
    yield "## Requests of the server\n"
    for method, asked in sorted(TABLE.server_requests.items()):
        yield f"#### `{method}`\n\n{asked.doc}\n"
        yield fields_list(definitions, params_name(asked), asked.params, "Parameters")
        yield fields_list(definitions, result_name(asked), asked.result, "Result")
    yield "## Notifications of the server\n"
    for method, sent in sorted(TABLE.server_notifications.items()):
        yield f"#### `{method}`\n\n{sent.doc}\n"
        yield fields_list(definitions, params_name(sent), sent.params, "Parameters")
    yield from types(definitions, set())


def _resource(method: str) -> str:
    return method.partition("/")[0]


def _example(definitions: Mapping[str, Schema], name: str) -> Json:
    """Return parameters with what they need."""
    schema = definitions.get(name, {})
    alternatives = schema.get("oneOf") or schema.get("anyOf")
    return _value(definitions, alternatives[0] if alternatives else schema, "")


def _value(definitions: Mapping[str, Schema], schema: Json, field: str) -> Json:
    """Return a value that a schema allows."""
    if field in _VALUES:
        return _VALUES[field]
    if field.endswith("Path"):
        return _VALUES["path"]
    match schema:
        case {"$ref": str(ref)}:
            return _value(definitions, definitions[ref.rpartition("/")[2]], field)
        case {"const": value} | {"enum": [value, *_]} | {"default": value}:
            return value
        case {"allOf": [first, *_]} | {"anyOf": [first, *_]} | {"oneOf": [first, *_]}:
            return _value(definitions, first, field)
        case {"type": "array"}:
            return ["git", "status"] if field == "command" else []
        case {"type": "boolean"}:
            return True
        case {"type": "integer" | "number"}:
            return 1
        case {"type": "string"}:
            return "…"
        case {"type": "object"} | {"properties": _}:
            needed, properties = schema.get("required", ()), schema.get("properties", {})
            return {
                name: _value(definitions, properties[name], name) for name in needed if name in properties
            }
        case _:
            return {}
