"""Whether a message is what the published schemas and the table of methods say."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Protocol

from jsonschema import Draft7Validator

from protocol.base import Json
from protocol.events.msg import EVENTS
from protocol.v1.methods import EVENT_PREFIX, TABLE

BUNDLE = Path(__file__).resolve().parents[2] / "schema" / "app_server_protocol.schemas.json"
ERROR_KEYS = {"code", "message", "data"}


class Entry(Protocol):
    @property
    def sent(self) -> bool: ...

    @property
    def message(self) -> Json: ...


@cache
def _definitions() -> Json:
    return json.loads(BUNDLE.read_text(encoding="utf-8"))["definitions"]


@cache
def _validator(name: str) -> Draft7Validator:
    return Draft7Validator({"definitions": _definitions(), "$ref": f"#/definitions/{name}"})


def fits(name: str, value: Json) -> list[str]:
    """Where `value` differs from the published type of that name."""
    errors = _validator(name).iter_errors(value)
    return [f"{name}: {'/'.join(map(str, error.path))} {error.message[:200]}" for error in errors]


def departures(message: Json, log: Sequence[Entry]) -> list[str]:
    """Where a message of the server departs from what is published. What the client sent may be anything."""
    if not any(entry.message is message and not entry.sent for entry in log):
        return []
    match message:
        case {"method": str(method), "id": _, **rest} if rest.keys() <= {"params"}:
            asked = TABLE.server_requests.get(method)
            return (
                [f"no server request {method}"]
                if asked is None
                else fits(asked.params.__name__, rest["params"])
            )
        case {"method": str(method), "params": params} if message.keys() == {"method", "params"}:
            return _notification(method, params)
        case {"id": id, "result": result} if message.keys() == {"id", "result"}:
            row = TABLE.client_requests.get(_method_of(id, log) or "")
            return ["an answer to no request"] if row is None else fits(row.result.__name__, result)
        case {"id": _, "error": {"code": int(), "message": str()} as error}:
            return [] if error.keys() <= ERROR_KEYS and message.keys() == {"id", "error"} else ["odd error"]
    return ["no message of the protocol"]


def _notification(method: str, params: Json) -> list[str]:
    if not method.startswith(EVENT_PREFIX):
        row = TABLE.server_notifications.get(method)
        return [f"no notification {method}"] if row is None else fits(row.params.__name__, params)
    event = params["msg"]
    if params.keys() != {"id", "msg", "conversationId"}:
        return [f"an event has the fields {sorted(params)}"]
    kind = EVENTS.get(event["type"])
    if kind is None or method != EVENT_PREFIX + event["type"]:
        return [f"{method} carries {event['type']}"]
    problems = fits(kind.__name__, event)
    if not problems and kind.model_validate(event).to_value() != event:
        problems.append(f"{kind.__name__} has fields that its model does not know, or lacks some")
    return problems


def _method_of(id: Json, log: Sequence[Entry]) -> str | None:
    for entry in log:
        message = entry.message
        if entry.sent and "method" in message and message.get("id") == id and type(message["id"]) is type(id):
            return str(message["method"])
    return None
