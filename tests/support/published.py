"""Check of messages against the published schemas and the table of methods."""

import json
from collections.abc import Sequence
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Protocol

from jsonschema_rs import Draft7Validator

from app_server_protocol.encoding import Json
from app_server_protocol.events.msg import EVENTS
from app_server_protocol.export import schemas
from app_server_protocol.export.schemas import params_name, result_name
from app_server_protocol.export.written import as_written
from app_server_protocol.method_table import Api, Table
from app_server_protocol.parse import read
from app_server_protocol.v1 import v1_table
from app_server_protocol.v1.conversation import EVENT_PREFIX
from app_server_protocol.v2 import v2_table

SCHEMAS = Path(__file__).resolve().parents[2] / "schema"
BUNDLES = {
    v1_table.TABLE.api: SCHEMAS / "app_server_protocol.schemas.json",
    v2_table.TABLE.api: SCHEMAS / "v2" / "app_server_protocol.experimental.schemas.json",
}
UNPUBLISHED = ("rawResponseItem/completed",)
"""Notifications of the thread API that have no schema."""
ERROR_KEYS = {"code", "message", "data"}


class Entry(Protocol):
    @property
    def sent(self) -> bool: ...

    @property
    def message(self) -> Json: ...


@cache
def definitions(api: Api) -> Json:
    return json.loads(BUNDLES[api].read_text(encoding="utf-8"))["definitions"]


@cache
def _written(api: Api) -> Json:
    """Return the definitions from which the TypeScript types are made. They require the fields that the server always
    writes.
    """
    if api is Api.V1:
        return as_written(schemas.definitions(marked=True), v1_table.TABLE)
    return as_written(schemas.thread_definitions(experimental=True, marked=True), v2_table.TABLE)


@cache
def _validators(name: str, api: Api) -> Sequence[Draft7Validator]:
    return [Draft7Validator(schemas.alone(name, each)) for each in (definitions(api), _written(api))]


def fits(name: str, value: Json, api: Api = Api.V1) -> list[str]:
    """Return where `value` differs from the published type of that name."""
    errors = chain.from_iterable(each.iter_errors(value) for each in _validators(name, api))
    return [f"{name}: {'/'.join(map(str, error.instance_path))} {error.message[:200]}" for error in errors]


def departures(entry: Entry, log: Sequence[Entry]) -> list[str]:
    """Return where a message of the server departs from the published API. The client may send anything."""
    if entry.sent:
        return []
    match message := entry.message:
        case {"method": str(method), "id": _, **rest} if rest.keys() <= {"params"}:
            table = _table(method)
            asked = table.server_requests.get(method)
            return (
                [f"no server request {method}"]
                if asked is None
                else fits(params_name(asked), rest["params"], table.api)
            )
        case {"method": str(method)} if method in UNPUBLISHED:
            return []
        case {"method": str(method), "params": params} if message.keys() - {"emittedAtMs"} == {
            "method",
            "params",
        }:
            return _notification(method, params)
        case {"id": id, "result": result} if message.keys() == {"id", "result"}:
            asked_for = _method_of(id, log) or ""
            table = _table(asked_for)
            row = table.client_requests.get(asked_for)
            return ["an answer to no request"] if row is None else fits(result_name(row), result, table.api)
        case {"id": _, "error": {"code": int(), "message": str()} as error}:
            return [] if error.keys() <= ERROR_KEYS and message.keys() == {"id", "error"} else ["odd error"]
    return ["no message of the protocol"]


def _notification(method: str, params: Json) -> list[str]:
    if not method.startswith(EVENT_PREFIX):
        table = _table(method)
        row = table.server_notifications.get(method)
        return [f"no notification {method}"] if row is None else fits(params_name(row), params, table.api)
    event = params["msg"]
    if params.keys() != {"id", "msg", "conversationId"}:
        return [f"an event has the fields {sorted(params)}"]
    kind = EVENTS.get(event["type"])
    if kind is None or method != EVENT_PREFIX + event["type"]:
        return [f"{method} carries {event['type']}"]
    problems = fits(kind.__name__, event)
    if not problems and read(kind, event).to_value() != event:
        problems.append(f"{kind.__name__} has fields that its model does not know, or lacks some")
    return problems


def _table(method: str) -> Table:
    """Return the table of the API that has the method; that of the newer API if both have it."""
    only_there = (
        method in v2_table.TABLE.server_notifications.keys() - v1_table.TABLE.server_notifications.keys()
    )
    return v2_table.TABLE if "/" in method or only_there else v1_table.TABLE


def _method_of(id: Json, log: Sequence[Entry]) -> str | None:
    for entry in log:
        message = entry.message
        if entry.sent and "method" in message and message.get("id") == id and type(message["id"]) is type(id):
            return str(message["method"])
    return None
