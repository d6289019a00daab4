"""Requests that were sent and not yet answered: register before sending, resolve once, settle all at the end."""

from __future__ import annotations

from dataclasses import field

import anyio

from protocol.base import Json
from protocol.records import dataclass


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back: a result, or why there is none."""

    result: Json = None
    error: str | None = None


@dataclass(slots=True)
class Waiter:
    """One request on its way; `wait` returns when it is answered or the connection ends."""

    id: int
    _done: anyio.Event = field(default_factory=anyio.Event)
    _answer: Answer | None = None

    def settle(self, answer: Answer) -> None:
        if self._answer is None:
            self._answer = answer
            self._done.set()

    async def wait(self) -> Answer:
        await self._done.wait()
        assert self._answer is not None
        return self._answer


class PendingRequests:
    """Waiters by request id. Ids count from 0, as the reference's do."""

    def __init__(self) -> None:
        self._next_id = 0
        self._waiters: dict[int, Waiter] = {}

    def __len__(self) -> int:
        return len(self._waiters)

    def register(self) -> Waiter:
        waiter = Waiter(self._next_id)
        self._next_id += 1
        self._waiters[waiter.id] = waiter
        return waiter

    def resolve(self, id: int | str, answer: Answer) -> bool:
        """False where nobody waits for that id, which a client may cause and must not hurt."""
        waiter = self._waiters.pop(id, None) if isinstance(id, int) else None
        if waiter is None:
            return False
        waiter.settle(answer)
        return True

    def forget(self, waiter: Waiter) -> None:
        self._waiters.pop(waiter.id, None)

    def settle_all(self, answer: Answer) -> None:
        for waiter in list(self._waiters.values()):
            waiter.settle(answer)
        self._waiters.clear()
