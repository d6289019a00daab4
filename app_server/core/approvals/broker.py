"""Questions to the user that wait for an answer, by call id, so that several may be open at once.

A question is registered before its event is emitted, and one that is withdrawn, because its turn ends, leaves
nothing behind: a late answer then finds nobody.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

import anyio

from protocol.policy import ReviewDecision
from protocol.records import dataclass


@dataclass(slots=True)
class _Question:
    turn_id: str
    answered: anyio.Event = field(default_factory=anyio.Event)
    decision: ReviewDecision = ReviewDecision.DENIED


class ApprovalBroker:
    """Open questions of one session."""

    def __init__(self) -> None:
        self._open: dict[str, _Question] = {}

    def __len__(self) -> int:
        return len(self._open)

    async def ask(self, call_id: str, turn_id: str, announce: Callable[[], None]) -> ReviewDecision:
        """Announce the question and wait. Two questions of one call id cannot be told apart: the second is denied."""
        if call_id in self._open:
            return ReviewDecision.DENIED
        question = self._open[call_id] = _Question(turn_id)
        try:
            announce()
            await question.answered.wait()
            return question.decision
        finally:
            del self._open[call_id]

    def knows(self, id: str) -> bool:
        """Whether an answer under this id would find its question."""
        return id in self._open or self._only_one_of(id) is not None

    def resolve(self, id: str, decision: ReviewDecision) -> bool:
        """Answer by call id, or by turn id where that turn has just one question. The first answer counts."""
        question = self._open.get(id) or self._only_one_of(id)
        if question is None or question.answered.is_set():
            return False
        question.decision = decision
        question.answered.set()
        return True

    def _only_one_of(self, turn_id: str) -> _Question | None:
        found = [question for question in self._open.values() if question.turn_id == turn_id]
        return found[0] if len(found) == 1 else None
