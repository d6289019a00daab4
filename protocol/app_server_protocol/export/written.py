"""The fields that the server always writes, for TypeScript types, and for the tests of messages.

A published schema requires few fields, as the schemas of codex do. The TypeScript types of codex require a field that
is always written, and a field that is left out if it has no value is never null there. A client that compiles with
these types compiles with those of this server. Pure: definitions in, definitions out.
"""

from collections.abc import Mapping

from app_server_protocol.encoding import Json
from app_server_protocol.export.definitions import WRITTEN, reachable
from app_server_protocol.export.schemas import params_name, result_name
from app_server_protocol.method_table import Table

_NULL = {"type": "null"}


def as_written(marked: Mapping[str, Json], table: Table) -> dict[str, Json]:
    """Return definitions without marks. Shapes that only the server sends require the fields that it always writes.
    Shapes that clients send, too, require no field that may be null, because clients may leave it out.
    """
    requests, questions = table.client_requests.values(), table.server_requests.values()
    results = [result_name(row) for row in requests]
    notices = [params_name(row) for row in table.server_notifications.values()]
    sent = reachable(marked, [*results, *notices, *(params_name(row) for row in questions)])
    answers = [result_name(row) for row in questions]
    received = reachable(marked, [*answers, *(params_name(row) for row in requests)])
    return {
        name: _written(schema, both_ways=name in received) if name in sent else _unmarked(schema)
        for name, schema in marked.items()
    }


def _written(schema: Json, *, both_ways: bool) -> Json:
    if WRITTEN not in schema:
        return schema
    fields: Mapping[str, Json] = schema["properties"]
    written, required = schema[WRITTEN], set(schema.get("required", ()))
    required |= {name for name in written if not (both_ways and _may_be_null(fields.get(name, {})))}
    kept = {name: field if name in written else _without_null(field) for name, field in fields.items()}
    whole = _unmarked({**schema, "properties": kept})
    return {**whole, "required": [name for name in fields if name in required]} if required else whole


def _may_be_null(field: Json) -> bool:
    return _NULL in field.get("anyOf", ())


def _without_null(field: Json) -> Json:
    """Return the schema of a field that is left out if it has no value. A field that can only be null is
    not changed.
    """
    left = [option for option in field.get("anyOf", ()) if option != _NULL]
    return {**field, "anyOf": left} if left else field


def _unmarked(schema: Json) -> Json:
    return {key: value for key, value in schema.items() if key != WRITTEN}
