"""Streams of events, as users read them: `async for`, and `async with` where leaving early must end something."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, Self, TypeVar, cast

import anyio

from app_server.client.event_queue import EventQueue
from app_server.client.events import ServerEvent, ThreadEvent
from app_server.client.failures import HandlerFailed
from app_server.client.turn_handle import TurnHandle, TurnResult

E = TypeVar("E", bound=ServerEvent)


class QueueReader:
    """What reads events of a queue. One task may read it."""

    def __init__(self, queue: EventQueue) -> None:
        self._queue = queue

    def __aiter__(self) -> Self:
        return self

    async def read_up(self) -> None:
        """Wait until whoever reads this has handled every event so far. A handler that asks a person calls it first, so
        that the question comes after what led to it."""
        await self._queue.read_up()


class EventSubscription(QueueReader, Generic[E]):
    """Events of a thread or of the server, until it is closed."""

    def __init__(self, queue: EventQueue, unsubscribe: Callable[[EventQueue], None]) -> None:
        super().__init__(queue)
        self._unsubscribe = unsubscribe

    async def __anext__(self) -> E:
        event = await self._queue.get()
        if event is None:
            raise StopAsyncIteration
        return cast("E", event)

    def close(self) -> None:
        """Take no more events; what already waits can still be read."""
        self._unsubscribe(self._queue)
        self._queue.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        self.close()


class TurnStream(QueueReader):
    """A turn and its events, from `turn/started` to `turn/completed`.

    The turn begins with the first event that is asked for, or with `async with`. Where the block of `async with` is
    left before the end of the turn, or a task is cancelled while it waits for an event, the turn is interrupted. A bare
    loop that is left with `break` leaves the turn running.
    """

    def __init__(self, begin: Callable[[EventQueue], Awaitable[TurnHandle]]) -> None:
        super().__init__(EventQueue())
        self._begin = begin
        self._turn: TurnHandle | None = None

    @property
    def turn(self) -> TurnHandle:
        """Raises RuntimeError before the turn has begun."""
        if self._turn is None:
            raise RuntimeError("the turn has not begun: read the stream, or enter it with `async with`")
        return self._turn

    async def __anext__(self) -> ThreadEvent:
        if self._turn is None:
            self._turn = await self._begin(self._queue)
        try:
            event = await self._queue.get()
        except (anyio.get_cancelled_exc_class(), HandlerFailed):
            await self._turn.abandon()
            raise
        if event is None:
            raise StopAsyncIteration
        return cast("ThreadEvent", event)

    async def result(self) -> TurnResult[None]:
        """Wait for the end of the turn, without reading what is left of the stream."""
        return await self.turn.result()

    async def __aenter__(self) -> Self:
        if self._turn is None:
            self._turn = await self._begin(self._queue)
        return self

    async def __aexit__(self, *raised: object) -> None:
        self._queue.close()
        await self.turn.abandon()
