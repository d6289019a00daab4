"""The order rules of the thread API, applied to the record of one connection: what the client sent and received."""

from __future__ import annotations

from collections.abc import Sequence

from app_server.inspector.rules.order import OrderChecker, Requests
from app_server.inspector.rules.thread_rules import THREAD_RULES, THREAD_RULES_OF_THE_END
from tests.support.client import Logged


def violated_thread_invariants(log: Sequence[Logged], *, left_early: bool = False) -> list[str]:
    """A rule about the end of something holds only for clients that stayed to the end."""
    checker, requests = OrderChecker(THREAD_RULES, THREAD_RULES_OF_THE_END), Requests()
    broken = []
    for entry in log:
        if isinstance(entry.message, dict):
            broken += checker.see(requests.match(entry.sent, entry.message))
    if not left_early:
        broken += checker.end()
    return [f"{rule}: {problem}" for rule, problem in broken]
