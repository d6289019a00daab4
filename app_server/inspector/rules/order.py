"""How order rules are applied: each sees every message of one connection once, and says what is wrong with it. Pure.

A rule is a function that makes a `Check`. The check keeps what it has to remember, and gives the violations of a
message as texts. A message of the wrong shape is none of its business: the schema check names it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence

from protocol.base import Json
from protocol.records import dataclass


@dataclass(frozen=True, slots=True)
class WireMessage:
    """One message, with what rules want to know of it."""

    position: int
    sent: bool
    """By the client."""
    message: Json
    method: str
    """Of a request or a notification, else empty."""
    params: Json
    """An object, empty where there is none."""
    answers: str
    """The method of the request that this is the answer to; empty if it is none, or none is known."""
    asked_at: int
    """The position of that request."""
    result: Json
    """Of an answer that is no error; else None."""
    of_threads: bool
    """Whether it is a notification or a request of the server, in the thread API."""


EVENT_PREFIX = "codex/event/"
Check = Callable[[WireMessage], Iterator[str]]
Rule = Callable[[], Check]
AtTheEnd = Callable[[], Iterator[str]]
RuleOfTheEnd = Callable[[], tuple[Check, AtTheEnd]]
"""Its second part is called once, for a client that stayed to the end."""
Violation = tuple[str, str]
"""The name of the rule, and what is wrong."""


class Requests:
    """Finds for each message what it answers."""

    def __init__(self) -> None:
        self._asked: dict[tuple[bool, str], tuple[str, int]] = {}
        self._position = -1

    def match(self, sent: bool, message: dict[str, Json]) -> WireMessage:
        self._position += 1
        method = message.get("method")
        params = message.get("params")
        answers, asked_at, result = "", -1, None
        if "id" in message:
            key = json.dumps(message["id"])
            if isinstance(method, str):
                self._asked[sent, key] = (method, self._position)
            else:
                answers, asked_at = self._asked.pop((not sent, key), ("", -1))
                result = message.get("result")
        name = method if isinstance(method, str) else ""
        of_threads = ("/" in name and not name.startswith(EVENT_PREFIX)) or name == "error"
        return WireMessage(
            self._position,
            sent,
            message,
            name,
            params if isinstance(params, dict) else {},
            answers,
            asked_at,
            result,
            of_threads and not sent,
        )


class OrderChecker:
    """Applies rules to the messages of one connection."""

    def __init__(self, rules: Sequence[Rule], rules_of_the_end: Sequence[RuleOfTheEnd] = ()) -> None:
        self._checks = [(rule.__name__, rule()) for rule in rules]
        ends = [(rule.__name__, *rule()) for rule in rules_of_the_end]
        self._checks += [(name, check) for name, check, _ in ends]
        self._ends = [(name, end) for name, _, end in ends]

    def see(self, wire: WireMessage) -> list[Violation]:
        return [(name, problem) for name, check in self._checks for problem in _problems(check, wire)]

    def end(self) -> list[Violation]:
        """What is missing, where the client stayed to the end."""
        return [(name, problem) for name, end in self._ends for problem in end()]


def _problems(check: Check, wire: WireMessage) -> list[str]:
    try:
        return list(check(wire))
    except (KeyError, TypeError, AttributeError, IndexError, ValueError):
        return []
