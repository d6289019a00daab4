"""The application of order rules to the messages of one connection, and the rules of JSON-RPC itself. Pure.

A rule is a function that makes a `Check`. The check keeps its own state, and yields the violations of a message as
texts. It ignores a message with a wrong shape, which the schema check reports. The rules of JSON-RPC apply in both
directions.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import wraps

from msgspec import Struct

from app_server_protocol.encoding import Json


class WireMessage(Struct, frozen=True):
    """One message, with the facts that rules need."""

    position: int
    sent: bool
    """Whether the client sent it."""
    message: Json
    method: str
    """Method of a request or a notification. Otherwise empty."""
    params: Json
    """Parameters as an object. Empty if there are none."""
    asked: WireMessage | None
    """Request that this message answers. None if it is no answer, or if its request is not known."""
    result: Json
    """Result of an answer without an error. Otherwise None."""
    of_threads: bool
    """Whether it is a notification or a request of the server, in the thread API."""

    @property
    def answers(self) -> str:
        """The method of the request that this answers. Empty if there is none."""
        return "" if self.asked is None else self.asked.method

    @property
    def thread(self) -> str:
        """The id of the thread that the parameters name."""
        return str(self.params.get("threadId"))

    @property
    def joined(self) -> Json:
        """The thread that the client joins by this answer, in its current state. None for any other message."""
        return self.result["thread"] if self.result is not None and self.answers == "thread/resume" else None


EVENT_PREFIX = "codex/event/"
Check = Callable[[WireMessage], Iterator[str]]
Rule = Callable[[], Check]
AtTheEnd = Callable[[], Iterator[str]]
RuleOfTheEnd = Callable[[], tuple[Check, AtTheEnd]]
"""Rule with a second part, which is called once at the end if the client had not left."""
Violation = tuple[str, str]
"""Name of the rule, and a text about the violation."""


class Requests:
    """Finds the request that each message answers."""

    def __init__(self) -> None:
        self._asked: dict[tuple[bool, str], WireMessage] = {}
        self._position = -1

    def match(self, sent: bool, message: dict[str, Json]) -> WireMessage:
        self._position += 1
        given, params = message.get("method"), message.get("params")
        method = given if isinstance(given, str) else ""
        id = json.dumps(message["id"]) if "id" in message else None
        asked = self._asked.pop((not sent, id), None) if id is not None and not method else None
        of_threads = ("/" in method and not method.startswith(EVENT_PREFIX)) or method == "error"
        wire = WireMessage(
            self._position,
            sent,
            message,
            method,
            params if isinstance(params, dict) else {},
            asked,
            None if id is None or method else message.get("result"),
            of_threads and not sent,
        )
        if id is not None and method:
            self._asked[sent, id] = wire
        return wire


class OrderChecker:
    """Applies rules to the messages of one connection."""

    def __init__(self, rules: Iterable[Rule], rules_of_the_end: Sequence[RuleOfTheEnd] = ()) -> None:
        self._checks = [(rule.__name__, rule()) for rule in rules]
        ends = [(rule.__name__, *rule()) for rule in rules_of_the_end]
        self._checks += [(name, check) for name, check, _ in ends]
        self._ends = [(name, end) for name, _, end in ends]

    def see(self, wire: WireMessage) -> list[Violation]:
        return [(name, problem) for name, check in self._checks for problem in _problems(check, wire)]

    def end(self) -> list[Violation]:
        """Return the violations at the end, if the client had not left."""
        return [(name, problem) for name, end in self._ends for problem in end()]


def of_threads(rule: Rule) -> Rule:
    """Apply a rule only to the server's notifications and requests about threads, and to answers by which a client
    joins a thread.
    """

    @wraps(rule)
    def narrowed() -> Check:
        check = rule()
        return lambda wire: check(wire) if wire.of_threads or wire.joined else iter(())

    return narrowed


def _problems(check: Check, wire: WireMessage) -> list[str]:
    try:
        return list(check(wire))
    except (KeyError, TypeError, AttributeError, IndexError, ValueError):
        return []


def _key(wire: WireMessage) -> tuple[bool, str]:
    """Return the side that made the request, and its id."""
    return wire.sent == bool(wire.method), json.dumps(wire.message["id"])


def rpc_01_an_answer_has_one_request() -> Check:
    """Check that an answer has the id of an open request of the other side, and is the only one. An id of null answers
    a message that was not readable.
    """

    def check(wire: WireMessage) -> Iterator[str]:
        id = wire.message.get("id")
        if id is not None and wire.asked is None and wire.message.keys() & {"result", "error"}:
            yield f"an answer to {json.dumps(id)}, which is no open request"

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
    """Check the requests of the client. Requests of the server may become pointless."""
    open_requests: dict[int, str] = {}

    def check(wire: WireMessage) -> Iterator[str]:
        if wire.sent and wire.method and wire.message.get("id") is not None:
            open_requests[wire.position] = f"{wire.method} (request {json.dumps(wire.message['id'])})"
        elif wire.asked is not None and wire.asked.sent:
            open_requests.pop(wire.asked.position, None)
        yield from ()

    def end() -> Iterator[str]:
        yield from (f"{request} was not answered" for request in open_requests.values())

    return check, end


RPC_RULES: Sequence[Rule] = (
    rpc_01_an_answer_has_one_request,
    rpc_02_an_id_is_used_once_at_a_time,
    rpc_03_an_answer_is_a_result_or_an_error,
)
RPC_RULES_OF_THE_END: Sequence[RuleOfTheEnd] = (rpc_04_every_request_is_answered,)
