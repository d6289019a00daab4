"""Operations that were submitted and are not carried out yet, in the order in which they were submitted."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

import anyio

from app_server.core.errors import CoreError
from app_server.core.session.tasks import PendingOperation
from app_server.core.session.turn_requests import TurnRequest
from protocol.engine.questions import ClientAnswer
from protocol.ops import Op


class OperationQueue:
    """Many submit, one takes."""

    def __init__(self, new_turn_id: Callable[[], str]) -> None:
        self._new_turn_id = new_turn_id
        self._waiting: deque[PendingOperation] = deque()
        self._submissions = 0
        self._some = anyio.Event()
        self.closed = False
        self.performing: PendingOperation | None = None
        """What was taken and is being carried out."""

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[PendingOperation]:
        """What waits; without what is being carried out."""
        return iter(self._waiting)

    def submit(self, id: str, op: Op | ClientAnswer | TurnRequest) -> str:
        """Add an operation, whose events carry `id`; returns the id of the turn that it begins, if it begins one.

        Raises CoreError once the queue is closed.
        """
        if self.closed:
            raise CoreError("the conversation has ended")
        self._submissions += 1
        pending = PendingOperation(id, op, self._new_turn_id(), position=self._submissions)
        self._waiting.append(pending)
        self._some.set()
        return pending.turn_id

    def put_back(self, pending: PendingOperation) -> None:
        """It has to wait, and is carried out before everything that was submitted after it."""
        later = (n for n, each in enumerate(self._waiting) if each.position > pending.position)
        self._waiting.insert(next(later, len(self._waiting)), pending)
        self._some.set()

    async def take(self) -> PendingOperation:
        """The first, once there is one; it is `performing` until `done` is called."""
        while not self._waiting:
            await self._some.wait()
            self._some = anyio.Event()
        self.performing = self._waiting.popleft()
        return self.performing

    def done(self) -> None:
        self.performing = None

    def close(self) -> None:
        self.closed = True
