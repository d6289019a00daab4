"""The table and the events as one page for the authors of clients. The page comes back as text."""

import json
import re
from collections.abc import Iterator, Mapping, Set
from itertools import groupby
from pathlib import Path
from sys import modules
from typing import Final, get_args

from msgspec import NODEFAULT, structs

from protocol.base import Model
from protocol.events.msg import EVENTS, EventMsg
from protocol.export.schemas import Schema, params_name, published_name, references, result_name
from protocol.export.typescript import type_of
from protocol.structs import Json, Struct, Written
from protocol.v1.conversation import event_method
from protocol.v1.methods import TABLE
from protocol.v1.ops import OPERATIONS

_HERE: Final = Path(__file__).parent

INTRODUCTION: Final = _HERE / "introduction.md"

EXAMPLES: Final[Mapping[str, Mapping[str, Json]]] = json.loads((_HERE / "examples.json").read_text("utf-8"))
"""One exchange for every row of the table, by its kind and method: parameters, with the result of a request.

The page has them in this order.
"""

RUNS: Final = _HERE / "runs.md"
"""Typical runs as diagrams, which `make diagrams` records from tests."""

_TITLES: Final = {
    "commands": "Commands and patches",
    "messages": "Messages and reasoning",
    "msg": "The conversation",
    "notices": "Notices and lookups",
    "review": "Review",
    "tools": "Plan, web search and MCP servers",
    "turn": "Turns, their items and tokens",
}

_APPROVALS: Final = """\
Decisions: `approved`, `approved_for_session` (and the very same request needs no prompt again, unless the policy
becomes stricter), `denied` (the turn goes on), `abort` (the turn ends). `decline` and `cancel` are understood as
`denied` and `abort`. Every other answer counts as no: an error, another spelling, and `accept` and
`acceptForSession`, which belong to another API.
"""


def page(definitions: Mapping[str, Schema]) -> str:
    """Return the whole page, in Markdown."""
    return re.sub(r"\n{3,}", "\n\n", "\n".join(_parts(definitions))).rstrip() + "\n"


def _parts(definitions: Mapping[str, Schema]) -> Iterator[str]:
    started: Json = {"id": "0", "msg": {"type": "task_started", "model_context_window": 272000}}
    started["conversationId"] = EXAMPLES["requests"]["getConversationSummary"][0]["conversationId"]
    yield INTRODUCTION.read_text(encoding="utf-8")
    yield block(line({"method": event_method("task_started"), "params": started}))
    yield RUNS.read_text(encoding="utf-8")
    yield "## Requests of the client\n"
    for method, example in EXAMPLES["requests"].items():
        row = TABLE.client_requests[method]
        yield f"### `{row.method}`\n\n{row.doc}{' An extension.' if row.extension else ''}"
        yield "Handled in the conversation's order.\n" if row.ordered_by else ""
        yield _exchange(method, example, "→", "←")
        yield fields_list(definitions, params_name(row), row.params, "Parameters")
        yield fields_list(definitions, result_name(row), row.result, "Result")
    yield "## Notifications of the client\n"
    for notification in TABLE.client_notifications.values():
        yield f"### `{notification.method}`\n\n{notification.doc}\n"
        yield block("→ " + line({"method": notification.method}))
    yield f"## Requests of the server\n\n{_APPROVALS}"
    for method, example in EXAMPLES["server_requests"].items():
        asked = TABLE.server_requests[method]
        yield f"### `{asked.method}`\n\n{asked.doc}{' An extension.' if asked.extension else ''}\n"
        yield _exchange(method, example, "←", "→")
        yield fields_list(definitions, params_name(asked), asked.params, "Parameters")
        yield fields_list(definitions, result_name(asked), asked.result, "Result")
    yield "## Notifications of the server\n"
    for method, example in EXAMPLES["notifications"].items():
        sent = TABLE.server_notifications[method]
        yield f"### `{sent.method}`\n\n{sent.doc}\n"
        yield block("← " + line({"method": method, "params": example}))
        yield fields_list(definitions, params_name(sent), sent.params, "Parameters")
    yield "## Events\n"
    yield from _events(definitions)
    yield "## Operations\n\nWhat `submit` takes as `op`.\n"
    for operation in OPERATIONS:
        yield from _tagged(definitions, operation)
    shown = {published_name(model) for model in (*EVENTS.values(), *OPERATIONS)}
    yield from types(definitions, {*shown, "EventMsg", "Op"})


def _events(definitions: Mapping[str, Schema]) -> Iterator[str]:
    def home(model: type[EventMsg]) -> str:
        return model.__module__

    for module, group in groupby(sorted(EVENTS.values(), key=home), key=home):
        yield f"### {_TITLES[module.rpartition('.')[2]]}\n\n{_paragraphs(modules[module].__doc__)}\n"
        for model in group:
            yield from _tagged(definitions, model)


def types(definitions: Mapping[str, Schema], shown: Set[str]) -> Iterator[str]:
    """Yield a part with every type that a field names and that has no place of its own above, as those `shown` have."""
    yield "## Types\n\nWhat the fields above refer to.\n"
    fields = [inner for schema in definitions.values() for inner in properties(schema).values()]
    named = {ref for field in fields for ref in references(field)} - shown
    members = {ref for name in named for ref in references(definitions[name])}
    for name in sorted((named | members) - shown):
        yield f"#### `{name}`\n\n{definitions[name].get('description', '')}\n"
        yield block(type_of(definitions[name]))


def _tagged(definitions: Mapping[str, Schema], model: type[Written]) -> Iterator[str]:
    yield f"#### `{get_args(model.__annotations__['type'])[0]}`\n\n{_paragraphs(model.__doc__)}\n"
    yield fields_list(definitions, published_name(model), model, "Fields")


def fields_list(definitions: Mapping[str, Schema], name: str, model: type[Written], title: str) -> str:
    """Return the fields of a definition as a list; nothing for one without fields."""
    definition = definitions.get(name, {})
    omitted = _omitted(model)
    required = definition.get("required", [])
    lines = []
    for field, schema in properties(definition).items():
        remark = ", left out when there is none" if field in omitted else ""
        if title == "Parameters" and field not in required:
            remark = ", optional"
        lines.append(f"- `{field}`: `{type_of(schema)}`{remark}")
    return f"{title}:\n\n" + "\n".join(lines) + "\n" if lines else ""


def _omitted(kind: type[Written]) -> Set[str]:
    """Return the fields, as they are spelled on the wire, that are left out where they have no value."""
    if issubclass(kind, Model):
        return {field.alias or name for name, field in kind.model_fields.items() if field.exclude_if}
    if issubclass(kind, Struct) and kind.__struct_config__.omit_defaults:
        return {field.encode_name for field in structs.fields(kind) if field.default is not NODEFAULT}
    return set()


def properties(definition: Schema) -> dict[str, Schema]:
    """Return all fields but the tag; those of every alternative where there are some."""
    found: dict[str, Schema] = {}
    for part in (definition, *definition.get("anyOf", ())):
        found |= part.get("properties", {})
    return {name: schema for name, schema in found.items() if name != "type" or "const" not in schema}


def _exchange(method: str, example: Json, there: str, back: str) -> str:
    params, result = example
    request: Json = {"id": 1, "method": method}
    if params is not None:
        request["params"] = params
    return block(f"{there} {line(request)}\n{back} {line({'id': 1, 'result': result})}")


def block(text: str) -> str:
    return f"```\n{text}\n```\n"


def line(message: Json) -> str:
    return json.dumps(message, ensure_ascii=False)


def _paragraphs(docstring: str | None) -> str:
    lines = [line.strip() for line in (docstring or "").strip().splitlines()]
    return "\n".join(lines)
