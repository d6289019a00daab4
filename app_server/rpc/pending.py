"""Requests without a response yet: register before sending, resolve once, settle all at the end."""

from __future__ import annotations

from dataclasses import field

import anyio

from protocol.base import Json
from protocol.records import dataclass


@dataclass(frozen=True, slots=True)
class ClientReply:
    """The client's result, or an error text."""

    result: Json = None
    error: str | None = None


@dataclass(slots=True)
class Waiter:
    """One pending request; `wait` returns at its response or at the end of the connection."""

    id: int
    _done: anyio.Event = field(default_factory=anyio.Event)
    _reply: ClientReply | None = None

    def settle(self, reply: ClientReply) -> None:
        if self._reply is None:
            self._reply = reply
            self._done.set()

    async def wait(self) -> ClientReply:
        await self._done.wait()
        assert self._reply is not None
        return self._reply


class PendingRequests:
    """Waiters by request id. Ids count from 0, as in codex 0.58."""

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

    def resolve(self, id: int | str, reply: ClientReply) -> bool:
        """False if no request has that id, which a faulty client can cause."""
        waiter = self._waiters.pop(id, None) if isinstance(id, int) else None
        if waiter is None:
            return False
        waiter.settle(reply)
        return True

    def forget(self, waiter: Waiter) -> None:
        self._waiters.pop(waiter.id, None)

    def settle_all(self, reply: ClientReply) -> None:
        for waiter in list(self._waiters.values()):
            waiter.settle(reply)
        self._waiters.clear()
