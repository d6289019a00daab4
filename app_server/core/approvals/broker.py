"""Approval requests that wait for the user's decision, by call id; several may be open at once.

The broker registers a request before its event is emitted, so that no decision can arrive too early. It removes the
request when its turn ends; a decision that arrives later has no effect.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

import anyio

from protocol.engine.questions import AllowFiles, KeepRule
from protocol.policy import ReviewDecision
from protocol.records import dataclass


@dataclass(frozen=True, slots=True)
class ApprovalAnswer:
    """The user's decision, and what it allows beside the request."""

    decision: ReviewDecision
    also: KeepRule | AllowFiles | None = None


DENIAL = ApprovalAnswer(ReviewDecision.DENIED)


@dataclass(slots=True)
class _PendingApproval:
    turn_id: str
    decided: anyio.Event = field(default_factory=anyio.Event)
    answer: ApprovalAnswer = DENIAL


class ApprovalBroker:
    """Open approval requests of one session."""

    def __init__(self) -> None:
        self._open: dict[str, _PendingApproval] = {}

    def __len__(self) -> int:
        return len(self._open)

    async def request_decision(
        self, call_id: str, turn_id: str, emit_request: Callable[[], None]
    ) -> ApprovalAnswer:
        """Emit the request and wait for the decision. A second request with an open call id is denied, because a
        decision names nothing but the call id.
        """
        if call_id in self._open:
            return DENIAL
        pending = self._open[call_id] = _PendingApproval(turn_id)
        try:
            emit_request()
            await pending.decided.wait()
            return pending.answer
        finally:
            del self._open[call_id]

    def is_open(self, id: str) -> bool:
        """Whether `resolve` would find a request under this id."""
        return id in self._open or self._only_request_of(id) is not None

    def resolve(
        self, id: str, decision: ReviewDecision, *, also: KeepRule | AllowFiles | None = None
    ) -> bool:
        """Decide by call id, or by turn id if that turn has exactly one open request. The first decision counts."""
        pending = self._open.get(id) or self._only_request_of(id)
        if pending is None or pending.decided.is_set():
            return False
        pending.answer = ApprovalAnswer(decision, also)
        pending.decided.set()
        return True

    def _only_request_of(self, turn_id: str) -> _PendingApproval | None:
        found = [pending for pending in self._open.values() if pending.turn_id == turn_id]
        return found[0] if len(found) == 1 else None
