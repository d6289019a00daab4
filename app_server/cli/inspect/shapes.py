"""Validates messages against the models of the protocol: the parameters, results and events of the three APIs. Pure.

An unknown method is no violation: another server may have more methods.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from pydantic import ValidationError

from app_server.cli.inspect.rules.order import Violation, WireMessage
from app_server_protocol.acp import acp_table
from app_server_protocol.encoding import Json, JsonSerializable
from app_server_protocol.events.msg import EVENTS
from app_server_protocol.method_table import Table
from app_server_protocol.parse import read
from app_server_protocol.v1 import v1_table
from app_server_protocol.v1.conversation import EVENT_PREFIX
from app_server_protocol.v2 import v2_table
from app_server_protocol.wire_fields import PREFIX, describe_validation_error

SCHEMA = "schema"
UNKNOWN_METHOD = "unknown-method"
WITHOUT_MODEL = (
    "item/fileChange/outputDelta",
    "item/fileChange/patchUpdated",
    "item/mcpToolCall/progress",
    "rawResponseItem/completed",
    "session/update",
    "thread/compacted",
)
"""Notifications without a model here: those that only other servers send, and those that are not published."""


class Shapes:
    """Shapes of one connection. The client's first request shows which protocol is used."""

    def __init__(self) -> None:
        self._methods = _Methods(v1_table.TABLE, v2_table.TABLE)

    def violations(self, wire: WireMessage) -> list[Violation]:
        if wire.method == "initialize" and "protocolVersion" in wire.params:
            self._methods = _Methods(acp_table.TABLE)
        return list(self._violations(wire))

    def _violations(self, wire: WireMessage) -> Iterator[Violation]:
        message, methods = wire.message, self._methods
        if wire.method.startswith(EVENT_PREFIX) and not wire.sent:
            yield from _event(wire)
        elif wire.method:
            known = methods.params(wire)
            if known is None:
                if wire.method not in methods.without_model:
                    yield UNKNOWN_METHOD, f"{wire.method} is not in the protocol"
            else:
                yield from _departures(known, message.get("params"), "params")
        elif "error" in message:
            yield from _error(message["error"])
        elif "result" in message and wire.answers:
            expected = methods.result(wire)
            if expected is not None:
                yield from _departures(expected, message["result"], f"result of {wire.answers}")
        elif "id" not in message:
            yield SCHEMA, "neither `method` nor `id`"


class _Methods:
    """The rows of several tables. If two tables have a method, the later one takes precedence, except for
    `initialize`.
    """

    def __init__(self, *tables: Table) -> None:
        def merged(name: str) -> Mapping[str, Any]:
            rows = dict(chain.from_iterable(getattr(table, name).items() for table in tables))
            if "initialize" in rows:
                rows["initialize"] = getattr(tables[0], name)["initialize"]
            return rows

        self.client_requests = merged("client_requests")
        self.server_requests = merged("server_requests")
        self.server_notifications = merged("server_notifications")
        self.without_model = {*merged("client_notifications"), *WITHOUT_MODEL}

    def params(self, wire: WireMessage) -> type[JsonSerializable] | None:
        is_request = "id" in wire.message
        if wire.sent:
            row = self.client_requests.get(wire.method) if is_request else None
        else:
            row = (self.server_requests if is_request else self.server_notifications).get(wire.method)
        return None if row is None else row.params

    def result(self, wire: WireMessage) -> type[JsonSerializable] | None:
        row = (self.server_requests if wire.sent else self.client_requests).get(wire.answers)
        return None if row is None else row.result


def _event(wire: WireMessage) -> Iterator[Violation]:
    event = wire.params.get("msg")
    kind = event.get("type") if isinstance(event, dict) else None
    model = EVENTS.get(kind) if isinstance(kind, str) else None
    if model is None:
        yield UNKNOWN_METHOD, f"{wire.method} is not in the protocol"
    elif wire.method != f"{EVENT_PREFIX}{kind}":
        yield SCHEMA, f"{wire.method} carries {kind}"
    else:
        yield from _departures(model, event, "msg")


def _error(error: Json) -> Iterator[Violation]:
    match error:
        case {"code": int(), "message": str()}:
            return
        case _:
            yield SCHEMA, "error: expected an object with an integer `code` and a string `message`"


def _departures(model: type[JsonSerializable], value: Json, place: str) -> Iterator[Violation]:
    try:
        read(model, {} if value is None else value)
    except ValidationError as error:
        text, _ = describe_validation_error(error)
        yield SCHEMA, f"{place}: {text.removeprefix(PREFIX)}"
    except RecursionError:
        yield SCHEMA, f"{place}: nested too deeply"
