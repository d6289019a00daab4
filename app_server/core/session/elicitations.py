"""Questions that MCP servers put to the user: an event goes out, an operation brings the answer.

Without a client that declared support for them, or where the user wants none, they are declined at once.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from app_server.core.approvals.broker import PendingAnswers
from app_server.core.turn.emitter import TurnEmitter
from protocol.base import Json
from protocol.events.tools import ElicitationRequestEvent
from protocol.ops import ElicitationAction, ResolveElicitationOp


class ElicitationAnswer(Struct, frozen=True):
    action: ElicitationAction
    content: Json = None


class Elicitations:
    """Open questions of one session, by server and number."""

    def __init__(
        self,
        announce: Callable[[ElicitationRequestEvent, str | None], None],
        *,
        may_ask: Callable[[bool], bool],
    ) -> None:
        """`announce` is given the id of the turn that runs; `may_ask` whether the question is an approval."""
        self._announce, self._may_ask = announce, may_ask
        self.running_turn: Callable[[], TurnEmitter | None] = lambda: None
        """Set by the session, which begins turns."""
        self._next = 0
        self._open = PendingAnswers[tuple[str, str], ElicitationAnswer]()

    async def ask(
        self, server: str, message: str, schema: Json, meta: Json = None, *, is_approval: bool = False
    ) -> ElicitationAnswer:
        """`meta` is for APIs that have it."""
        if not self._may_ask(is_approval):
            return ElicitationAnswer(ElicitationAction.DECLINE)
        self._next += 1
        event = ElicitationRequestEvent(
            server_name=server, id=str(self._next), message=message, requested_schema=schema, meta=meta
        )
        turn = self.running_turn()
        turn_id = None if turn is None else turn.turn_id
        return await self._open.ask((server, event.id), lambda: self._announce(event, turn_id))

    def resolve(self, op: ResolveElicitationOp) -> None:
        self._open.resolve((op.server_name, op.request_id), ElicitationAnswer(op.decision, op.content))
