"""The order rules of JSON-RPC itself, which hold in both directions. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from app_server.inspector.rules.order import AtTheEnd, Check, Rule, RuleOfTheEnd, WireMessage


def _key(wire: WireMessage) -> tuple[bool, str]:
    """Who asked, and under which id."""
    return wire.sent == bool(wire.method), json.dumps(wire.message["id"])


def rpc_01_an_answer_has_one_request() -> Check:
    """It answers what the other side sent with that id, and nothing was answered to it before. An id of null answers
    what was not readable.
    """
    asked: set[tuple[bool, str]] = set()

    def check(wire: WireMessage) -> Iterator[str]:
        if wire.message.get("id") is None:
            return
        if not wire.message.keys() & {"result", "error"}:
            asked.add((wire.sent, json.dumps(wire.message["id"])))
            return
        key = _key(wire)
        if key not in asked:
            yield f"an answer to {key[1]}, which is no open request"
        asked.discard(key)

    return check


def rpc_02_an_id_is_used_once_at_a_time() -> Check:
    asked: set[tuple[bool, str]] = set()

    def check(wire: WireMessage) -> Iterator[str]:
        if wire.message.get("id") is None:
            return
        key = _key(wire)
        if not wire.method:
            asked.discard(key)
        elif key in asked:
            yield f"the id {key[1]} is used again before its answer"
        else:
            asked.add(key)

    return check


def rpc_03_an_answer_is_a_result_or_an_error() -> Check:
    def check(wire: WireMessage) -> Iterator[str]:
        if (
            "id" in wire.message
            and not wire.method
            and ("result" in wire.message) == ("error" in wire.message)
        ):
            yield "an answer with both a result and an error, or neither"

    return check


def rpc_04_every_request_is_answered() -> tuple[Check, AtTheEnd]:
    """Of the client; what the server asks may become pointless."""
    open_requests: dict[str, str] = {}

    def check(wire: WireMessage) -> Iterator[str]:
        if wire.sent and wire.method and wire.message.get("id") is not None:
            open_requests[json.dumps(wire.message["id"])] = wire.method
        elif not wire.sent and not wire.method:
            open_requests.pop(json.dumps(wire.message.get("id")), None)
        yield from ()

    def end() -> Iterator[str]:
        yield from (f"{method} (request {id}) was not answered" for id, method in open_requests.items())

    return check, end


RPC_RULES: Sequence[Rule] = (
    rpc_01_an_answer_has_one_request,
    rpc_02_an_id_is_used_once_at_a_time,
    rpc_03_an_answer_is_a_result_or_an_error,
)
RPC_RULES_OF_THE_END: Sequence[RuleOfTheEnd] = (rpc_04_every_request_is_answered,)
