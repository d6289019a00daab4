"""The order rules of JSON-RPC itself, which hold in both directions. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from app_server.inspector.rules.order import AtTheEnd, Check, Rule, RuleOfTheEnd, WireMessage


def _key(said: WireMessage) -> tuple[bool, str]:
    """Who asked, and under which id."""
    return said.sent == bool(said.method), json.dumps(said.message["id"])


def rpc_01_an_answer_has_one_request() -> Check:
    """It answers what the other side sent with that id, and nothing was answered to it before. An id of null answers
    what was not readable.
    """
    asked: set[tuple[bool, str]] = set()

    def check(said: WireMessage) -> Iterator[str]:
        if said.message.get("id") is None:
            return
        if not said.message.keys() & {"result", "error"}:
            asked.add((said.sent, json.dumps(said.message["id"])))
            return
        key = _key(said)
        if key not in asked:
            yield f"an answer to {key[1]}, which is no open request"
        asked.discard(key)

    return check


def rpc_02_an_id_is_used_once_at_a_time() -> Check:
    asked: set[tuple[bool, str]] = set()

    def check(said: WireMessage) -> Iterator[str]:
        if said.message.get("id") is None:
            return
        key = _key(said)
        if not said.method:
            asked.discard(key)
        elif key in asked:
            yield f"the id {key[1]} is used again before its answer"
        else:
            asked.add(key)

    return check


def rpc_03_an_answer_is_a_result_or_an_error() -> Check:
    def check(said: WireMessage) -> Iterator[str]:
        if (
            "id" in said.message
            and not said.method
            and ("result" in said.message) == ("error" in said.message)
        ):
            yield "an answer with both a result and an error, or neither"

    return check


def rpc_04_every_request_is_answered() -> tuple[Check, AtTheEnd]:
    """Of the client; what the server asks may become pointless."""
    open_requests: dict[str, str] = {}

    def check(said: WireMessage) -> Iterator[str]:
        if said.sent and said.method and said.message.get("id") is not None:
            open_requests[json.dumps(said.message["id"])] = said.method
        elif not said.sent and not said.method:
            open_requests.pop(json.dumps(said.message.get("id")), None)
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
