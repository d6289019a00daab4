"""Pending requests to the user: approval requests by call id, and questions by a key that both sides know.

A request is registered before its event is emitted, so that no answer can arrive too early. The first answer counts. A
request is removed when its turn ends, a question when its caller gives up; a later answer has no effect.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

import anyio
from msgspec import Struct

from app_server_protocol.engine.questions import FileGrant, RuleAmendment
from app_server_protocol.policy import ReviewDecision


class ApprovalAnswer(Struct, frozen=True):
    """The user's decision, and what it allows in addition to the request."""

    decision: ReviewDecision
    also: RuleAmendment | FileGrant | None = None


DENIAL = ApprovalAnswer(ReviewDecision.DENIED)


Key = TypeVar("Key", bound=Hashable)
Answer = TypeVar("Answer")


class PendingAnswers(Generic[Key, Answer]):
    def __init__(self) -> None:
        self._open: dict[Key, anyio.Event] = {}
        self._answers: dict[Key, Answer] = {}

    def __len__(self) -> int:
        return len(self._open)

    async def ask(self, key: Key, emit: Callable[[], None]) -> Answer:
        """Emit the question and wait for its answer. At most one question may be open under a key."""
        assert key not in self._open
        answered = self._open[key] = anyio.Event()
        try:
            emit()
            await answered.wait()
            return self._answers[key]
        finally:
            del self._open[key]
            self._answers.pop(key, None)

    def resolve(self, key: Key, answer: Answer) -> bool:
        """Answer a question. Return False if no caller waits for it any more."""
        answered = self._open.get(key)
        if answered is None or answered.is_set():
            return False
        self._answers[key] = answer
        answered.set()
        return True


class ApprovalBroker:
    """Open approval requests of one session, by call id."""

    def __init__(self) -> None:
        self._pending = PendingAnswers[str, ApprovalAnswer]()
        self._turns: dict[str, str] = {}
        """Turn id of each open request, by call id."""

    def __len__(self) -> int:
        return len(self._pending)

    async def request_decision(
        self, call_id: str, turn_id: str, emit_request: Callable[[], None]
    ) -> ApprovalAnswer:
        """Emit the request and wait for the decision. A second request with an open call id is denied, because a
        decision contains only the call id.
        """
        if call_id in self._turns:
            return DENIAL
        self._turns[call_id] = turn_id
        try:
            return await self._pending.ask(call_id, emit_request)
        finally:
            del self._turns[call_id]

    def is_open(self, id: str) -> bool:
        """Return whether `resolve` would find a request under this id."""
        return self._request_of(id) is not None

    def resolve(
        self, id: str, decision: ReviewDecision, *, also: RuleAmendment | FileGrant | None = None
    ) -> bool:
        """Decide the request with this call id, or the only open request of the turn with this id. The first decision
        counts. Return whether it took effect.
        """
        call_id = self._request_of(id)
        return call_id is not None and self._pending.resolve(call_id, ApprovalAnswer(decision, also))

    def _request_of(self, id: str) -> str | None:
        found = [call_id for call_id, turn_id in self._turns.items() if turn_id == id]
        return id if id in self._turns else found[0] if len(found) == 1 else None
