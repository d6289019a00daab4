"""What waits for the user: requests for approval, by call id, and questions, by a key that both sides know.

A request is registered before its event is emitted, so that no answer can arrive too early. The first answer counts. A
request is removed when its turn ends, a question when its asker gives it up; a later answer has no effect.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

import anyio
import msgspec
from msgspec import Struct

from protocol.engine.questions import AllowFiles, KeepRule
from protocol.policy import ReviewDecision


class ApprovalAnswer(Struct, frozen=True):
    """The user's decision, and what it allows beside the request."""

    decision: ReviewDecision
    also: KeepRule | AllowFiles | None = None


DENIAL = ApprovalAnswer(ReviewDecision.DENIED)


class _PendingApproval(Struct):
    turn_id: str
    decided: anyio.Event = msgspec.field(default_factory=anyio.Event)
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


Key = TypeVar("Key", bound=Hashable)
Answer = TypeVar("Answer")


class _OpenQuestion(Struct, Generic[Answer]):
    answered: anyio.Event = msgspec.field(default_factory=anyio.Event)
    answers: list[Answer] = msgspec.field(default_factory=list)


class PendingAnswers(Generic[Key, Answer]):
    def __init__(self) -> None:
        self._open: dict[Key, _OpenQuestion[Answer]] = {}

    def __len__(self) -> int:
        return len(self._open)

    async def ask(self, key: Key, emit: Callable[[], None]) -> Answer:
        """Emit the question and wait for its answer. No two questions are open under one key."""
        assert key not in self._open
        waiting = self._open[key] = _OpenQuestion[Answer]()
        try:
            emit()
            await waiting.answered.wait()
            return waiting.answers[0]
        finally:
            del self._open[key]

    def resolve(self, key: Key, answer: Answer) -> bool:
        """False if nobody waits for it any more."""
        waiting = self._open.get(key)
        if waiting is None or waiting.answered.is_set():
            return False
        waiting.answers.append(answer)
        waiting.answered.set()
        return True
