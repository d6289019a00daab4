"""A page about each API for the authors of clients: its table, and the events of conversations. Pages are texts."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from itertools import groupby
from pathlib import Path
from sys import modules
from typing import Final, get_args

from msgspec import NODEFAULT, structs

from app_server_protocol.base import Model
from app_server_protocol.encoding import Json, JsonSerializable
from app_server_protocol.events.msg import EVENTS, EventMsg
from app_server_protocol.export.definitions import references
from app_server_protocol.export.field_notes import alternatives, is_experimental, meaning
from app_server_protocol.export.schemas import Schema, params_name, published_name, result_name
from app_server_protocol.export.typescript import type_of
from app_server_protocol.method_table import AnyClientRequest, AnyServerRequest
from app_server_protocol.outgoing import Struct
from app_server_protocol.v1 import v1_table
from app_server_protocol.v1.conversation import event_method
from app_server_protocol.v1.ops import OPERATIONS
from app_server_protocol.v2 import v2_table

_HERE: Final = Path(__file__).parent

INTRODUCTION: Final = _HERE / "introduction.md"

EXAMPLES: Final[Mapping[str, Mapping[str, Json]]] = json.loads((_HERE / "examples.json").read_text("utf-8"))
"""One exchange for every row of the table, by its kind and method: parameters, with the result of a request.

The page has them in this order.
"""

RUNS: Final = _HERE / "runs.md"
"""Typical runs as diagrams, which `make diagrams` records from tests."""

_TITLES: Final = {
    "command_events": "Commands and patches",
    "messages": "Messages and reasoning",
    "msg": "The conversation",
    "notice_events": "Notices and lookups",
    "review_events": "Review",
    "tools": "Plan, web search and MCP servers",
    "turn_events": "Turns, their items and tokens",
}

_APPROVALS: Final = """\
Decisions: `approved`, `approved_for_session` (and the very same request needs no prompt again, unless the policy
becomes stricter), `denied` (the turn goes on), `abort` (the turn ends). `decline` and `cancel` are understood as
`denied` and `abort`. Every other answer counts as no: an error, another spelling, and `accept` and
`acceptForSession`, which belong to another API.
"""


def page(definitions: Mapping[str, Schema]) -> str:
    """Return the page of the conversation API, in Markdown."""
    return _page(_parts(definitions))


def thread_page(definitions: Mapping[str, Schema], stable: Mapping[str, Schema]) -> str:
    """Return the page of the thread API, in Markdown. `stable` are the definitions without experimental parts."""
    return _page(_thread_parts(definitions, stable))


def _page(parts: Iterable[str]) -> str:
    return re.sub(r"\n{3,}", "\n\n", "\n".join(parts)).rstrip() + "\n"


def _parts(definitions: Mapping[str, Schema]) -> Iterator[str]:
    table = v1_table.TABLE
    started: Json = {"id": "0", "msg": {"type": "task_started", "model_context_window": 272000}}
    started["conversationId"] = EXAMPLES["requests"]["getConversationSummary"][0]["conversationId"]
    yield INTRODUCTION.read_text(encoding="utf-8")
    yield _block(_line({"method": event_method("task_started"), "params": started}))
    yield RUNS.read_text(encoding="utf-8")
    yield "## Requests of the client\n"
    for method, example in EXAMPLES["requests"].items():
        row = table.client_requests[method]
        yield f"### `{row.method}`\n\n{row.doc}{' An extension.' if row.extension else ''}"
        yield "Handled in the conversation's order.\n" if row.ordered_by else ""
        yield _exchange(method, example, "→", "←")
        yield _both_shapes(definitions, row)
    yield "## Notifications of the client\n"
    for notification in table.client_notifications.values():
        yield f"### `{notification.method}`\n\n{notification.doc}\n"
        yield _block("→ " + _line({"method": notification.method}))
    yield f"## Requests of the server\n\n{_APPROVALS}"
    for method, example in EXAMPLES["server_requests"].items():
        asked = table.server_requests[method]
        yield f"### `{asked.method}`\n\n{asked.doc}{' An extension.' if asked.extension else ''}\n"
        yield _exchange(method, example, "←", "→")
        yield _both_shapes(definitions, asked)
    yield "## Notifications of the server\n"
    for method, example in EXAMPLES["notifications"].items():
        sent = table.server_notifications[method]
        yield f"### `{sent.method}`\n\n{sent.doc}\n"
        yield _block("← " + _line({"method": method, "params": example}))
        yield _fields_list(definitions, params_name(sent), sent.params, "Parameters")
    yield "## Events\n"
    yield from _events(definitions)
    yield "## Operations\n\nWhat `submit` takes as `op`.\n"
    for operation in OPERATIONS:
        yield from _tagged(definitions, operation)
    shown = {published_name(model) for model in (*EVENTS.values(), *OPERATIONS)}
    yield from _types(definitions, {*shown, "EventMsg", "Op"})


def _events(definitions: Mapping[str, Schema]) -> Iterator[str]:
    def home(model: type[EventMsg]) -> str:
        return model.__module__

    for module, group in groupby(sorted(EVENTS.values(), key=home), key=home):
        yield f"### {_TITLES[module.rpartition('.')[2]]}\n\n{_paragraphs(modules[module].__doc__)}\n"
        for model in group:
            yield from _tagged(definitions, model)


def _types(definitions: Mapping[str, Schema], shown: Set[str]) -> Iterator[str]:
    """Yield a part with every type that a field names and that is not described above, as those in `shown` are."""
    yield "## Types\n\nWhat the fields above refer to.\n"
    fields = [inner for schema in definitions.values() for inner in _properties(schema).values()]
    named = {ref for field in fields for ref in references(field)} - shown
    members = {ref for name in named for ref in references(definitions[name])}
    for name in sorted((named | members) - shown):
        yield f"#### `{name}`\n\n{definitions[name].get('description', '')}\n"
        yield _block(type_of(definitions[name]))


def _tagged(definitions: Mapping[str, Schema], model: type[JsonSerializable]) -> Iterator[str]:
    yield f"#### `{get_args(model.__annotations__['type'])[0]}`\n\n{_paragraphs(model.__doc__)}\n"
    yield _fields_list(definitions, published_name(model), model, "Fields")


def _both_shapes(definitions: Mapping[str, Schema], row: AnyClientRequest | AnyServerRequest) -> str:
    params = _fields_list(definitions, params_name(row), row.params, "Parameters")
    return f"{params}\n{_fields_list(definitions, result_name(row), row.result, 'Result')}"


def _fields_list(
    definitions: Mapping[str, Schema],
    name: str,
    model: type[JsonSerializable],
    title: str,
    noted: Callable[[str], str] = lambda field: "",
) -> str:
    """Return the fields of a definition as a list; "" for one without fields. `noted` returns a remark
    about a field.
    """
    definition = definitions.get(name, {})
    omitted = _omitted(model)
    required = definition.get("required", [])
    lines = []
    for field, schema in _properties(definition).items():
        remark = ", left out when there is none" if field in omitted else ""
        if title == "Parameters" and field not in required:
            remark = ", optional"
        lines.append(f"- `{field}`: `{type_of(schema)}`{remark}{noted(field)}")
    return f"{title}:\n\n" + "\n".join(lines) + "\n" if lines else ""


def _omitted(kind: type[JsonSerializable]) -> Set[str]:
    """Return the names on the wire of the fields that are left out if they have no value."""
    if issubclass(kind, Model):
        return {field.alias or name for name, field in kind.model_fields.items() if field.exclude_if}
    if issubclass(kind, Struct) and kind.__struct_config__.omit_defaults:
        return {field.encode_name for field in structs.fields(kind) if field.default is not NODEFAULT}
    return set()


def _properties(definition: Schema) -> dict[str, Schema]:
    """Return all fields but the tag; of a union, those of every alternative."""
    found: dict[str, Schema] = {}
    for part in (definition, *definition.get("anyOf", ())):
        found |= part.get("properties", {})
    return {name: schema for name, schema in found.items() if name != "type" or "const" not in schema}


def _exchange(method: str, example: Json, there: str, back: str) -> str:
    params, result = example
    request: Json = {"id": 1, "method": method}
    if params is not None:
        request["params"] = params
    return _block(f"{there} {_line(request)}\n{back} {_line({'id': 1, 'result': result})}")


def _block(text: str) -> str:
    return f"```\n{text}\n```\n"


def _line(message: Json) -> str:
    return json.dumps(message, ensure_ascii=False)


def _paragraphs(docstring: str | None) -> str:
    lines = [line.strip() for line in (docstring or "").strip().splitlines()]
    return "\n".join(lines)


_THREADS_HEAD: Final = """\
# The thread API: reference

Every method and notification with its fields, made of the table that the server routes by
(`python -m app_server_protocol.export`). [threads.md](threads.md) says how they belong together: runs, the order of
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
"""Example values of fields for which their type alone would give none that is meaningful."""


def _thread_parts(definitions: Mapping[str, Schema], stable: Mapping[str, Schema]) -> Iterator[str]:
    table = v2_table.TABLE

    def both(row: AnyClientRequest | AnyServerRequest) -> str:
        params = _noted_list(definitions, stable, params_name(row), row.params, "Parameters")
        return f"{params}\n{_noted_list(definitions, stable, result_name(row), row.result, 'Result')}"

    yield _THREADS_HEAD
    yield "## Requests of the client\n"
    for resource, methods in groupby(sorted(table.client_requests), key=_resource):
        yield f"### {resource}\n"
        for method in methods:
            row = table.client_requests[method]
            mark = " *Experimental.*" if row.experimental else ""
            yield f"#### `{method}`\n\n{row.doc}{mark}\n"
            yield _block(_line({"id": 1, "method": method, "params": _example(definitions, row)}))
            yield both(row)
    yield "## Requests of the server\n"
    for method, asked in sorted(table.server_requests.items()):
        yield f"#### `{method}`\n\n{asked.doc}\n"
        yield both(asked)
    yield "## Notifications of the server\n"
    for method, sent in sorted(table.server_notifications.items()):
        yield f"#### `{method}`\n\n{sent.doc}\n"
        yield _noted_list(definitions, stable, params_name(sent), sent.params, "Parameters")
    yield from _types(definitions, set())


def _noted_list(
    definitions: Mapping[str, Schema],
    stable: Mapping[str, Schema],
    name: str,
    model: type[JsonSerializable],
    title: str,
) -> str:
    """Return the fields with their meanings, and the members of a union with theirs."""
    definition = definitions.get(name, {})

    def noted(field: str) -> str:
        said = meaning(model, field)
        mark = " *Experimental.*" if is_experimental(stable, name, field) else ""
        return (f": {said}." if said else "." if mark else "") + mark

    fields = _fields_list(definitions, name, model, title, noted)
    members = alternatives(definitions, definition)
    if not members:
        return fields
    listed = "\n".join(f"- `{type_of(each)}`" for each in members)
    return f"{fields}\n{title}, one of these{' beside' if fields else ''}:\n\n{listed}\n"


def _resource(method: str) -> str:
    return method.partition("/")[0]


def _example(definitions: Mapping[str, Schema], row: AnyClientRequest) -> Json:
    """Return example parameters with all required fields."""
    return _value(definitions, definitions.get(params_name(row), {}), "")


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
