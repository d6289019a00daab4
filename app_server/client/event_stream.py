"""Streams of events for users of the library, and the queue between the reader of the connection and a stream.

A user reads a stream with `async for`. `async with` ends the subscription or turn if the block is left early. The queue
is bounded, and putting never waits. A consumer that reads in time gets every event. If it falls behind, neighbouring
deltas of a text are coalesced. Above `TEXT_LIMIT` deltas are dropped and counted (`DeltasDropped`). Above `EVENT_LIMIT`
events the stream ends with `StreamOverflow`. So a consumer that does not read stops neither the other threads nor their
approvals.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from typing import Generic, Self, TypeVar, cast

import anyio

from app_server.client.events import DELTAS, Delta, DeltasDropped, ServerEvent, ThreadEvent, continues, joined
from app_server.client.failures import HandlerFailed, StreamOverflow
from app_server.client.turn_handle import TurnHandle, TurnResult

EVENT_LIMIT = 4096
"""Maximum number of waiting events. Neighbouring deltas count as one."""

TEXT_LIMIT = 8 << 20
"""Maximum size of waiting deltas, in characters."""


class WaitingDelta:
    """Neighbouring deltas of one text, which are coalesced."""

    def __init__(self, first: Delta) -> None:
        self.first, self.pieces = first, [first.delta]

    def event(self) -> Delta:
        return joined(self.first, self.pieces)


class EventQueue:
    """Waiting events of one consumer."""

    def __init__(self, *, events: int = EVENT_LIMIT, text: int = TEXT_LIMIT) -> None:
        self._event_limit, self._text_limit = events, text
        self._waiting: deque[ServerEvent | WaitingDelta] = deque()
        self._text = 0
        self._dropped = 0
        self._error: Exception | None = None
        self._closed = False
        self._changed = anyio.Event()
        self._consumer_waits = False
        self._read_up = anyio.Event()

    def put(self, event: ServerEvent) -> None:
        if self._closed:
            return
        if isinstance(event, DELTAS):
            self._put_delta(event)
        elif len(self._waiting) < self._event_limit:
            self._note_dropped()
            self._waiting.append(event)
        else:
            self.close(StreamOverflow(f"more than {self._event_limit} events were not read"))
        self._changed.set()

    def _put_delta(self, delta: Delta) -> None:
        if self._text + len(delta.delta) > self._text_limit or len(self._waiting) >= self._event_limit:
            self._dropped += 1
            return
        self._note_dropped()
        self._text += len(delta.delta)
        last = self._waiting[-1] if self._waiting else None
        if isinstance(last, WaitingDelta) and continues(last.first, delta):
            last.pieces.append(delta.delta)
        else:
            self._waiting.append(WaitingDelta(delta))

    def _note_dropped(self) -> None:
        if self._dropped:
            self._waiting.append(DeltasDropped(self._dropped))
            self._dropped = 0

    def close(self, error: Exception | None = None) -> None:
        """Accept no more events. Waiting events can still be read, then `error` is raised once."""
        if not self._closed:
            self._note_dropped()
            self._closed, self._error = True, error
            self._changed.set()
            self._read_up.set()

    def waiting(self) -> Iterator[ServerEvent]:
        """Yield the waiting events, without removing them."""
        return (each.event() if isinstance(each, WaitingDelta) else each for each in self._waiting)

    async def read_up(self) -> None:
        """Wait until the consumer has read everything and waits for more, or the queue is closed."""
        while not self._closed and (self._waiting or not self._consumer_waits):
            if self._read_up.is_set():
                self._read_up = anyio.Event()
            await self._read_up.wait()

    async def _wait(self) -> None:
        self._changed = anyio.Event()
        self._consumer_waits = True
        self._read_up.set()
        try:
            await self._changed.wait()
        finally:
            self._consumer_waits = False

    async def get(self) -> ServerEvent | None:
        """Return the next event; None at the end. Raises the error with which the queue was closed."""
        await anyio.lowlevel.checkpoint()
        while not self._waiting:
            if self._closed:
                error, self._error = self._error, None
                if error is not None:
                    raise error
                return None
            await self._wait()
        event = self._waiting.popleft()
        if isinstance(event, WaitingDelta):
            self._text -= sum(map(len, event.pieces))
            return event.event()
        return event


E = TypeVar("E", bound=ServerEvent)


class QueueReader:
    """Reader of a queue of events. One task may read it."""

    def __init__(self, queue: EventQueue) -> None:
        self._queue = queue

    def __aiter__(self) -> Self:
        return self

    async def read_up(self) -> None:
        """Wait until the reader has handled every event so far. A handler that asks a person calls it first, so that
        the question comes after the events that led to it.
        """
        await self._queue.read_up()


class EventSubscription(QueueReader, Generic[E]):
    """Subscription to the events of a thread or of the server. It ends with `close`."""

    def __init__(self, queue: EventQueue, unsubscribe: Callable[[EventQueue], None]) -> None:
        super().__init__(queue)
        self._unsubscribe = unsubscribe

    async def __anext__(self) -> E:
        event = await self._queue.get()
        if event is None:
            raise StopAsyncIteration
        return cast("E", event)

    def close(self) -> None:
        """End the subscription. Waiting events can still be read."""
        self._unsubscribe(self._queue)
        self._queue.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        self.close()


class TurnStream(QueueReader):
    """A turn and its events, from `turn/started` to `turn/completed`.

    The turn begins when the first event is requested, or with `async with`. The turn is interrupted if the block of
    `async with` is left before the end of the turn, or if a task is cancelled while it waits for an event. A bare loop
    that is left with `break` leaves the turn running.
    """

    def __init__(self, begin: Callable[[EventQueue], Awaitable[TurnHandle]]) -> None:
        super().__init__(EventQueue())
        self._begin = begin
        self._turn: TurnHandle | None = None

    @property
    def turn(self) -> TurnHandle:
        """The turn. Raises RuntimeError before it has begun."""
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
        """Wait for the end of the turn, without reading the rest of the stream."""
        return await self.turn.result()

    async def __aenter__(self) -> Self:
        if self._turn is None:
            self._turn = await self._begin(self._queue)
        return self

    async def __aexit__(self, *raised: object) -> None:
        self._queue.close()
        await self.turn.abandon()
