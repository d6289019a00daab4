"""Questions that MCP servers put to the user: an event goes out, an operation brings the answer.

Without a client that declared support for them they are declined at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

import anyio

from protocol.base import Json
from protocol.events.mcp import ElicitationRequestEvent
from protocol.ops import ElicitationAction, ResolveElicitationOp
from protocol.records import dataclass


@dataclass(frozen=True, slots=True)
class ElicitationAnswer:
    action: ElicitationAction
    content: Json = None


@dataclass(slots=True)
class _Question:
    answered: anyio.Event = field(default_factory=anyio.Event)
    answer: ElicitationAnswer = ElicitationAnswer(ElicitationAction.CANCEL)


class Elicitations:
    """Open questions of one session."""

    def __init__(self, announce: Callable[[ElicitationRequestEvent], None], *, supported: bool) -> None:
        self._announce, self._supported = announce, supported
        self._next = 0
        self._open: dict[tuple[str, str], _Question] = {}

    async def ask(self, server: str, message: str, schema: Json) -> ElicitationAnswer:
        if not self._supported:
            return ElicitationAnswer(ElicitationAction.DECLINE)
        self._next += 1
        key = (server, str(self._next))
        question = self._open[key] = _Question()
        try:
            self._announce(
                ElicitationRequestEvent(
                    server_name=server, id=key[1], message=message, requested_schema=schema
                )
            )
            await question.answered.wait()
            return question.answer
        finally:
            del self._open[key]

    def resolve(self, op: ResolveElicitationOp) -> None:
        question = self._open.get((op.server_name, op.request_id))
        if question is not None and not question.answered.is_set():
            question.answer = ElicitationAnswer(op.decision, op.content)
            question.answered.set()
