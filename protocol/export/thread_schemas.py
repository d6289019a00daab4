"""The thread API's table as JSON Schema: one definition per type, with the names of the reference protocol.

Pure, like `schemas`, from which all that both APIs share comes. Without `experimental`, the methods and fields
that a client has to ask for are left out, and so is every type that only they lead to.
"""

from collections.abc import Iterator, Mapping
from functools import cache

from pydantic import BaseModel

from protocol.export.schemas import (
    DRAFT,
    UNSERVED,
    Schema,
    bare_call,
    call,
    envelopes,
    generated,
    references,
    tidy,
)
from protocol.structs import Json
from protocol.table import AnyClientRequest, Table
from protocol.v2.fields import EXPERIMENTAL
from protocol.v2.methods import TABLE


@cache
def definitions(*, experimental: bool) -> Mapping[str, Schema]:
    """Return every published type by name, in alphabetical order."""
    requests = [row for row in TABLE.client_requests.values() if experimental or not row.experimental]
    models = list(_models(TABLE, requests))
    found = {name: tidy(_fields(schema, experimental)) for name, schema in generated(models, {}).items()}
    found |= UNSERVED["definitions"]
    roots = envelopes() | _unions(TABLE, requests)
    found |= roots
    wanted = _reachable(found, [*roots, *(model.__name__ for model in models)])
    return {name: found[name] for name in sorted(wanted)}


def bundle(*, experimental: bool) -> Schema:
    return {
        "$schema": DRAFT,
        "title": "AppServerThreadProtocol",
        "type": "object",
        "definitions": definitions(experimental=experimental),
    }


def _models(table: Table, requests: list[AnyClientRequest]) -> Iterator[type[BaseModel]]:
    for request in requests:
        yield from (request.params, request.result)
    for row in table.server_notifications.values():
        yield row.params
    for asked in table.server_requests.values():
        yield from (asked.params, asked.result)


def _unions(table: Table, requests: list[AnyClientRequest]) -> dict[str, Schema]:
    unsent = {row["behind"]: (method, row) for method, row in UNSERVED["server_notifications"].items()}
    of_server = []
    for sent in table.server_notifications.values():
        of_server.append(call(sent.method, sent.params, sent.doc, with_id=False))
        behind = sent.method
        while behind in unsent:
            behind, row = unsent[behind]
            of_server.append(call(behind, row["params"], row["doc"], with_id=False))
    of_client = [bare_call(row.method, row.doc) for row in table.client_notifications.values()]
    return {
        "ClientRequest": {"oneOf": [call(row.method, row.params, row.doc) for row in requests]},
        "ClientNotification": {"oneOf": of_client},
        "ServerNotification": {"oneOf": of_server},
        "ServerRequest": {
            "oneOf": [call(row.method, row.params, row.doc) for row in table.server_requests.values()]
        },
    }


def _fields(schema: Json, experimental: bool) -> Json:
    """`schema` without the marks of experimental fields, and without these fields unless they are wanted."""
    match schema:
        case {"properties": dict(properties)}:
            kept = {
                name: _fields(field, experimental)
                for name, field in properties.items()
                if experimental or EXPERIMENTAL not in field
            }
            rest = {key: _fields(inner, experimental) for key, inner in schema.items() if key != "properties"}
            return {**rest, "properties": kept}
        case dict():
            return {key: _fields(inner, experimental) for key, inner in schema.items() if key != EXPERIMENTAL}
        case list():
            return [_fields(inner, experimental) for inner in schema]
        case _:
            return schema


def _reachable(found: dict[str, Schema], roots: list[str]) -> set[str]:
    seen: set[str] = set()
    waiting = [name for name in roots if name in found]
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting += references(found[name])
    return seen
