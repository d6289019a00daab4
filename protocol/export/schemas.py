"""The table as JSON Schema (draft 7): one definition per type, and the unions of messages.

Pure: models in, plain dicts out. Definitions carry the names that the reference protocol gives them, so
that code generated from either schema fits the other.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final

from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from protocol.base import ELSEWHERE
from protocol.events.msg import EventMsg
from protocol.events.review import ReviewOutputEvent
from protocol.ids import ConversationId
from protocol.mcp import McpResult
from protocol.policy import SandboxMode
from protocol.rollout import CompactedItem, SessionMetaLine, TurnContextItem
from protocol.structs import Json
from protocol.table import NoParams
from protocol.v1.methods import TABLE
from protocol.v1.ops import Submission
from protocol.v1.setup import GitSha

UNSERVED: Final[Mapping[str, Json]] = json.loads(Path(__file__).with_name("unserved.json").read_text("utf-8"))
"""What is published and never sent: methods of the thread API in the schema of conversations, and shapes and
notifications of the thread API itself.
"""

DRAFT: Final = "http://json-schema.org/draft-07/schema#"
REF: Final = "#/definitions/"

Schema = dict[str, Json]

_PUBLISHED_AS: Final = {
    "McpResult": "Result_of_CallToolResult_or_String",
    "ModelEntry": "Model",
    "ListedModel": "Model",
    "ShownConfig": "Config",
    "CollaborationSettings": "Settings",
    "McpToolDefinition": "Tool",
    "ListedTool": "Tool",
}
"""Names that are spelled differently in the code."""

_NOT_PUBLISHED: Final = frozenset({"NoParams"})

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
"""Types that no row of the table leads to, or that it leads to only by reference."""


@cache
def definitions() -> Mapping[str, Schema]:
    """Return every published type by name, in alphabetical order."""
    found = generated(_models(), _EXTRA)
    found |= {name: TypeAdapter(kind).json_schema() for name, kind in _NAMED_SCALARS.items()}
    found |= envelopes() | _events() | _unions()
    # The members overlap: an image and a sound have the same fields, and other content has any.
    found["ContentBlock"]["anyOf"] = found["ContentBlock"].pop("oneOf")
    return {name: tidy(found[name]) for name in sorted(found)}


def bundle() -> Schema:
    return {"$schema": DRAFT, "title": "AppServerProtocol", "type": "object", "definitions": definitions()}


def alone(name: str, all_definitions: Mapping[str, Schema]) -> Schema:
    """Return one definition as a document of its own, with all that it refers to."""
    needed: dict[str, Schema] = {}
    waiting = [name]
    while waiting:
        for ref in references(all_definitions[waiting.pop()]):
            if ref not in needed:
                needed[ref] = all_definitions[ref]
                waiting.append(ref)
    document = {"$schema": DRAFT, "title": name, **all_definitions[name]}
    if needed:
        document["definitions"] = {ref: needed[ref] for ref in sorted(needed)}
    return document


def references(schema: Json) -> Iterator[str]:
    """Return the names of the definitions that a schema refers to."""
    match schema:
        case dict():
            if isinstance(ref := schema.get("$ref"), str):
                yield ref.removeprefix(REF)
            for inner in schema.values():
                yield from references(inner)
        case list():
            for inner in schema:
                yield from references(inner)
        case _:
            pass


def _models() -> list[type[BaseModel]]:
    models: list[type[BaseModel]] = [row.params for row in TABLE.server_notifications.values()]
    for request in TABLE.client_requests.values():
        models += [request.params, request.result]
    for asked in TABLE.server_requests.values():
        models += [asked.params, asked.result]
    return models


def generated(models: Iterable[type[BaseModel]], extra: Mapping[str, Json]) -> dict[str, Schema]:
    """Return the definitions of these types and of all that they are made of, by their published names."""
    adapters = {model.__name__: TypeAdapter(model) for model in models}
    adapters |= {name: TypeAdapter(kind) for name, kind in extra.items()}
    generator = GenerateJsonSchema(by_alias=True, ref_template=REF + "{model}")
    _, made = generator.generate_definitions(
        [(name, "validation", adapter.core_schema) for name, adapter in adapters.items()]
    )
    return {_published(str(name)): schema for name, schema in made.items() if name not in _NOT_PUBLISHED}


def envelopes() -> dict[str, Schema]:
    """Return what every message is, whatever its method."""
    any_value: Schema = {}
    request_id: Schema = {"$ref": f"{REF}RequestId"}
    text: Schema = {"type": "string"}
    kinds = ("Request", "Notification", "Response", "Error")
    return {
        "RequestId": {"anyOf": [text, {"type": "integer", "format": "int64"}]},
        "JSONRPCMessage": {"anyOf": [{"$ref": f"{REF}JSONRPC{kind}"} for kind in kinds]},
        "JSONRPCRequest": _object({"id": request_id, "method": text, "params": any_value}, "id", "method"),
        "JSONRPCNotification": _object({"method": text, "params": any_value}, "method"),
        "JSONRPCResponse": _object({"id": request_id, "result": any_value}, "id", "result"),
        "JSONRPCError": _object(
            {"id": request_id, "error": {"$ref": f"{REF}JSONRPCErrorError"}}, "id", "error"
        ),
        "JSONRPCErrorError": _object(
            {"code": {"type": "integer", "format": "int64"}, "data": any_value, "message": text},
            "code",
            "message",
        ),
    }


def _events() -> dict[str, Schema]:
    return {
        "EventNotificationParams": _object(
            {
                "id": {"type": "string"},
                "msg": {"$ref": f"{REF}EventMsg"},
                "conversationId": {"$ref": f"{REF}ConversationId"},
            },
            "id",
            "msg",
            "conversationId",
        )
        | {"description": "Parameters of every `codex/event/*` notification."},
        "Option<()>": {"type": "null"},
    }


def _unions() -> dict[str, Schema]:
    not_served = "Of the thread API; not served by this version."
    requests = [call(row.method, row.params, row.doc) for row in TABLE.client_requests.values()]
    others = UNSERVED["conversations"]
    requests += [
        call(name, NoParams if name in others["without_params"] else None, not_served)
        for name in others["client_requests"]
    ]
    notifications = [
        call(row.method, row.params, row.doc, with_id=False) for row in TABLE.server_notifications.values()
    ]
    notifications += [call(name, None, not_served, with_id=False) for name in others["server_notifications"]]
    of_client = [bare_call(row.method, row.doc) for row in TABLE.client_notifications.values()]
    asked = [call(row.method, row.params, row.doc) for row in TABLE.server_requests.values()]
    return {
        "ClientRequest": {"oneOf": requests},
        "ClientNotification": {"oneOf": of_client},
        "ServerNotification": {"oneOf": notifications},
        "ServerRequest": {"oneOf": asked},
    }


def bare_call(method: str, doc: str) -> Schema:
    """Return a notification without parameters."""
    return _object({"method": {"type": "string", "const": method}}, "method") | {"description": doc}


def call(method: str, params: type[BaseModel] | str | None, doc: str, *, with_id: bool = True) -> Schema:
    """Return a message with that method; parameters, also named by their definition, may be anything if None."""
    fields: Schema = {"id": {"$ref": f"{REF}RequestId"}} if with_id else {}
    fields["method"] = {"type": "string", "const": method}
    required = list(fields)
    name = params if isinstance(params, str | None) else published_name(params)
    if name in _NOT_PUBLISHED:
        fields["params"] = {"type": "null"}
    else:
        fields["params"] = {} if name is None else {"$ref": REF + name}
        required.append("params")
    return _object(fields, *required) | {"description": doc}


def _object(properties: Schema, *required: str) -> Schema:
    return {"type": "object", "properties": properties, "required": list(required)}


def published_name(model: type[object]) -> str:
    return _published(model.__name__)


def _published(name: str) -> str:
    return _PUBLISHED_AS.get(name, name)


def tidy(schema: Json, *, properties: bool = False) -> Json:
    """`schema` in draft 7 and without what only repeats the names of fields; a tag is always required."""
    match schema:
        case {"$ref": str(ref)}:
            return {"$ref": REF + _published(ref.removeprefix(ELSEWHERE).removeprefix(REF))}
        case dict() if properties:
            return {name: tidy(inner) for name, inner in schema.items()}
        case dict():
            dropped = ("title", "discriminator", "default")
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
