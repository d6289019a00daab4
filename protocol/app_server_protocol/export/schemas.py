"""The tables of both APIs as JSON Schema (draft 7): one definition per type, and the unions of messages.

Pure: models in, plain dicts out. Definitions carry the names that the reference protocol gives them, so
that code generated from either schema fits the other.
"""

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter

from app_server_protocol.base import ELSEWHERE
from app_server_protocol.encoding import Json, JsonSerializable
from app_server_protocol.engine.item_values import ReviewOutputEvent
from app_server_protocol.events.msg import EventMsg
from app_server_protocol.export.definitions import REF, WRITTEN, MarkingGenerator, reachable, references
from app_server_protocol.ids import ConversationId
from app_server_protocol.mcp import McpResult
from app_server_protocol.method_table import AnyClientRequest, AnyServerNotification, AnyServerRequest, Table
from app_server_protocol.policy import SandboxMode
from app_server_protocol.rollout import CompactedItem, SessionMetaLine, TurnContextItem
from app_server_protocol.v1 import v1_table
from app_server_protocol.v1.ops import Submission
from app_server_protocol.v1.setup import GitSha
from app_server_protocol.v2 import v2_table
from app_server_protocol.v2.fields import EXPERIMENTAL
from app_server_protocol.values import replace

Schema = dict[str, Json]

_FOLDER: Final = Path(__file__).parent

UNSERVED: Final[Mapping[str, Json]] = json.loads((_FOLDER / "unserved.json").read_text("utf-8"))
"""Parts of the published schemas that this server never sends: methods of the thread API in the schema of
conversations, and shapes and notifications of the thread API itself.
"""

ENVELOPES: Final[Mapping[str, dict[str, Schema]]] = json.loads(
    (_FOLDER / "envelopes.json").read_text("utf-8")
)
"""Envelopes of messages, which are independent of the method; and the envelope of events of a conversation."""

ORDER: Final[Mapping[str, Sequence[str]]] = json.loads((_FOLDER / "order.json").read_text("utf-8"))
"""Methods of each published API in the order in which they are published; the newest need no place here."""

DRAFT: Final = "http://json-schema.org/draft-07/schema#"

_PUBLISHED_AS: Final = {
    "McpResult": "Result_of_CallToolResult_or_String",
    "ModelEntry": "Model",
    "ListedModel": "Model",
    "ShownConfig": "Config",
    "CollaborationSettings": "Settings",
    "McpToolDefinition": "Tool",
    "ListedTool": "Tool",
}
"""Published names of types that have another name in the code."""

_NOT_PUBLISHED: Final = frozenset({"NoParams"})

_NAMED_FOR_ONE: Final = ("Params", "Response", "Notification")
"""Suffixes of shapes that belong to one method. A shape with another name is shared by several methods, and is
published under a name for each of them.
"""

_METHODS_NAMED: Final = {
    "account/logout": "LogoutAccount",
    "config/mcpServer/reload": "McpServerRefresh",
    "removeConversationListener": "RemoveConversationSubscription",
    "thread/name/set": "ThreadSetName",
}
"""Names of shapes for methods whose own names are spelled differently."""

_NAMED_SCALARS: Final[Mapping[str, Json]] = {"ConversationId": ConversationId, "GitSha": GitSha}

_EXTRA: Final[Mapping[str, Json]] = {
    "EventMsg": EventMsg,
    "McpResult": McpResult,
    "ReviewOutputEvent": ReviewOutputEvent,
    "SandboxMode": SandboxMode,
    "Submission": Submission,
    "SessionMetaLine": SessionMetaLine,
    "CompactedItem": CompactedItem,
    "TurnContextItem": TurnContextItem,
}
"""Types that no row of the table leads to, or only by reference."""


@cache
def definitions(*, marked: bool = False) -> Mapping[str, Schema]:
    """Return every published type of the conversation API by name, in alphabetical order; with the marks of fields that
    are always written if `marked`.
    """
    table = v1_table.TABLE
    found = generated({**shapes_of(table), **_EXTRA})
    found |= {name: TypeAdapter(kind).json_schema() for name, kind in _NAMED_SCALARS.items()}
    found |= ENVELOPES["all"] | ENVELOPES["conversations"] | unions(table, *_unserved())
    # The members overlap: an image and audio have the same fields, and other content has any.
    found["ContentBlock"]["anyOf"] = found["ContentBlock"].pop("oneOf")
    return {name: _with_mark(tidy(found[name]), found[name], marked) for name in sorted(found)}


@cache
def thread_definitions(*, experimental: bool, marked: bool = False) -> Mapping[str, Schema]:
    """Return every published type of the thread API by name, in alphabetical order. Without `experimental`, the methods
    and fields that need an opt-in are left out, and so is every type that only they refer to.
    """
    whole = v2_table.TABLE
    requests = whole.client_requests.items()
    table = replace(
        whole,
        client_requests={method: row for method, row in requests if experimental or not row.experimental},
    )
    shapes = shapes_of(table)
    found = {
        name: _with_mark(tidy(_wanted_fields(schema, experimental)), schema, marked)
        for name, schema in generated(shapes).items()
    }
    found |= UNSERVED["definitions"]
    unsent = {
        method: call(method, row["params"], row["doc"], with_id=False)
        for method, row in UNSERVED["server_notifications"].items()
    }
    roots = ENVELOPES["all"] | unions(table, {}, unsent)
    found |= roots
    wanted = reachable(found, [*roots, *shapes])
    return {name: found[name] for name in sorted(wanted)}


def bundle(title: str, all_definitions: Mapping[str, Schema]) -> Schema:
    return {"$schema": DRAFT, "title": title, "type": "object", "definitions": all_definitions}


def alone(name: str, all_definitions: Mapping[str, Schema]) -> Schema:
    """Return one definition as a document of its own, with all definitions that it refers to."""
    document = {"$schema": DRAFT, "title": name, **all_definitions[name]}
    if needed := reachable(all_definitions, references(all_definitions[name])):
        document["definitions"] = {ref: all_definitions[ref] for ref in sorted(needed)}
    return document


def shapes_of(table: Table) -> dict[str, Json]:
    """Return the parameters and results of all methods by their published names."""
    found = {params_name(row): row.params for row in table.server_notifications.values()}
    for row in chain[AnyClientRequest | AnyServerRequest](
        table.client_requests.values(), table.server_requests.values()
    ):
        found |= {params_name(row): row.params, result_name(row): row.result}
    return found


def generated(shapes: Mapping[str, Json]) -> dict[str, Schema]:
    """Return the definitions of these types and of all types that they refer to, by their published names."""
    adapters = {name: TypeAdapter(kind) for name, kind in shapes.items()}
    generator = MarkingGenerator(by_alias=True, ref_template=REF + "{model}")
    _, made = generator.generate_definitions(
        [(name, "validation", adapter.core_schema) for name, adapter in adapters.items()]
    )
    of_many = {name: kind.__name__ for name, kind in shapes.items() if name not in made}
    found = {_published(name): made[name] for name in made.keys() - _NOT_PUBLISHED - set(of_many.values())}
    for name, shape in of_many.items():
        found[name] = {key: each for key, each in made[shape].items() if key != "description"}
    return found


def _unserved() -> tuple[dict[str, Schema], dict[str, Schema]]:
    """Return the requests and notifications of the thread API that the schema of conversations has too."""
    doc, others = "Of the thread API; not served by this version.", UNSERVED["conversations"]
    without = others["without_params"]
    return (
        {
            name: call(name, "NoParams" if name in without else None, doc)
            for name in others["client_requests"]
        },
        {name: call(name, None, doc, with_id=False) for name in others["server_notifications"]},
    )


def unions(
    table: Table, more_requests: Mapping[str, Schema], more_notifications: Mapping[str, Schema]
) -> dict[str, Schema]:
    """Return the unions of an API's messages by sender, including additional messages, by method, that are only
    published.
    """
    sent = table.server_notifications.values()
    calls: Mapping[str, Mapping[str, Schema]] = {
        "ClientRequest": {**_calls(table.client_requests), **more_requests},
        "ClientNotification": {
            row.method: bare_call(row.method, row.doc) for row in table.client_notifications.values()
        },
        "ServerNotification": {
            **{row.method: call(row.method, params_name(row), row.doc, with_id=False) for row in sent},
            **more_notifications,
        },
        "ServerRequest": _calls(table.server_requests),
    }
    order = ORDER[table.api.value]
    return {
        name: {"oneOf": [found[method] for method in sorted(found, key=partial(_rank, order))]}
        for name, found in calls.items()
    }


def _rank(order: Sequence[str], method: str) -> tuple[int, str]:
    """Return the position of a method in the schemas. Those that `order.json` does not name come last, by name."""
    return (order.index(method), "") if method in order else (len(order), method)


def _calls(rows: Mapping[str, AnyClientRequest] | Mapping[str, AnyServerRequest]) -> dict[str, Schema]:
    return {method: call(method, params_name(row), row.doc) for method, row in rows.items()}


def bare_call(method: str, doc: str) -> Schema:
    """Return a notification without parameters."""
    return _object({"method": {"type": "string", "const": method}}, "method") | {"description": doc}


def call(method: str, params: str | None, doc: str, *, with_id: bool = True) -> Schema:
    """Return a message with that method; `params` is the name of their definition, or None if they may be anything."""
    fields: Schema = {"id": {"$ref": f"{REF}RequestId"}} if with_id else {}
    fields["method"] = {"type": "string", "const": method}
    required = list(fields)
    if params in _NOT_PUBLISHED:
        fields["params"] = {"type": "null"}
    else:
        fields["params"] = {} if params is None else {"$ref": REF + params}
        required.append("params")
    return _object(fields, *required) | {"description": doc}


def _object(properties: Schema, *required: str) -> Schema:
    return {"type": "object", "properties": properties, "required": list(required)}


def params_name(row: AnyClientRequest | AnyServerNotification | AnyServerRequest) -> str:
    return _name_at(row.method, row.params, "Params")


def result_name(row: AnyClientRequest | AnyServerRequest) -> str:
    return _name_at(row.method, row.result, "Response")


def _name_at(method: str, shape: type[JsonSerializable], role: str) -> str:
    """Return the published name of a method's parameters or result."""
    if shape.__name__.endswith(_NAMED_FOR_ONE):
        return published_name(shape)
    words = re.split("[/_]", method)
    return _METHODS_NAMED.get(method, "".join(word[0].upper() + word[1:] for word in words)) + role


def published_name(model: type[object]) -> str:
    return _published(model.__name__)


def _published(name: str) -> str:
    return _PUBLISHED_AS.get(name, name)


def tidy(schema: Json, *, properties: bool = False) -> Json:
    """Return `schema` in draft 7, without titles that only repeat the names of fields; a tag is always required."""
    match schema:
        case {"$ref": str(ref)}:
            return {"$ref": REF + _published(ref.removeprefix(ELSEWHERE).removeprefix(REF))}
        case dict() if properties:
            return {name: tidy(inner) for name, inner in schema.items()}
        case dict():
            dropped = ("title", "discriminator", "default", WRITTEN)
            kept = {
                key: tidy(inner, properties=key == "properties")
                for key, inner in schema.items()
                if key not in dropped
            }
            if not kept.get("properties", True):
                del kept["properties"]
            tags = [name for name, inner in kept.get("properties", {}).items() if "const" in inner]
            if missing := [tag for tag in tags if tag not in kept.get("required", [])]:
                kept["required"] = [*missing, *kept.get("required", [])]
            return kept
        case list():
            return [tidy(inner) for inner in schema]
        case _:
            return schema


def _with_mark(tidied: Schema, schema: Schema, marked: bool) -> Schema:
    """Return a tidied definition, with the mark of the fields that are always written if `marked`."""
    return {**tidied, WRITTEN: schema[WRITTEN]} if marked and WRITTEN in schema else tidied


def _wanted_fields(schema: Json, experimental: bool) -> Json:
    """Return `schema` without the marks of experimental fields, and without these fields unless they are wanted."""
    match schema:
        case {"properties": dict(properties)}:
            kept = {
                name: _wanted_fields(field, experimental)
                for name, field in properties.items()
                if experimental or EXPERIMENTAL not in field
            }
            rest = {
                key: _wanted_fields(inner, experimental)
                for key, inner in schema.items()
                if key != "properties"
            }
            return {**rest, "properties": kept}
        case dict():
            return {
                key: _wanted_fields(inner, experimental)
                for key, inner in schema.items()
                if key != EXPERIMENTAL
            }
        case list():
            return [_wanted_fields(inner, experimental) for inner in schema]
        case _:
            return schema
