"""The thread API's table as JSON Schema: one definition per type, with the names of the reference protocol.

Pure, like `schemas`, from which all that both APIs share comes. Without `experimental`, the methods and fields
that a client has to ask for are left out, and so is every type that only they lead to.
"""

from collections.abc import Mapping
from functools import cache

from protocol.export.schemas import (
    ENVELOPES,
    UNSERVED,
    Schema,
    call,
    generated,
    references,
    shapes_of,
    tidy,
    unions,
)
from protocol.structs import Json, replace
from protocol.v2.fields import EXPERIMENTAL
from protocol.v2.methods import TABLE


@cache
def definitions(*, experimental: bool) -> Mapping[str, Schema]:
    """Return every published type by name, in alphabetical order."""
    requests = TABLE.client_requests.items()
    table = replace(
        TABLE,
        client_requests={method: row for method, row in requests if experimental or not row.experimental},
    )
    shapes = shapes_of(table)
    found = {name: tidy(_fields(schema, experimental)) for name, schema in generated(shapes).items()}
    found |= UNSERVED["definitions"]
    unsent = {
        method: call(method, row["params"], row["doc"], with_id=False)
        for method, row in UNSERVED["server_notifications"].items()
    }
    roots = ENVELOPES["all"] | unions(table, {}, unsent)
    found |= roots
    wanted = _reachable(found, [*roots, *shapes])
    return {name: found[name] for name in sorted(wanted)}


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
