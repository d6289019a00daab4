"""One answer as batches of events: what a network chunk holds, at once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from app_server.core.errors import ModelError, StreamDisconnected
from app_server.core.model.errors import DISCONNECTED, IDLE
from app_server.core.model.events import ModelEvent
from app_server.core.model.http import Fault, HttpFailure
from app_server.core.model.sse import FrameTooLong, SseDecoder, SseFrame


class WireDecoder(Protocol):
    """What a provider's API makes of frames."""

    completed: bool

    def decode(self, frame: SseFrame, out: list[ModelEvent]) -> None: ...

    def end(self, out: list[ModelEvent]) -> None: ...


class EventStream:
    """Batches in order, none empty. Ends after `Completed`, or raises once all before it was handed out."""

    def __init__(self, chunks: AsyncIterator[bytes], decoder: WireDecoder, first: list[ModelEvent]) -> None:
        self._chunks, self._decoder = chunks, decoder
        self._first = first
        self._sse = SseDecoder()
        self._failure: ModelError | None = None
        self._ended = False

    @property
    def completed(self) -> bool:
        return self._decoder.completed

    def __aiter__(self) -> AsyncIterator[list[ModelEvent]]:
        return self

    async def __anext__(self) -> list[ModelEvent]:
        if self._first:
            first, self._first = self._first, []
            return first
        while True:
            if self._failure is not None:
                raise self._failure
            if self._ended or self._decoder.completed:
                raise StopAsyncIteration
            events: list[ModelEvent] = []
            try:
                await self._next(events)
            except ModelError as error:
                # What was understood before the failure is handed out first.
                self._failure = error
            if events:
                return events

    async def _next(self, events: list[ModelEvent]) -> None:
        decoder = self._decoder
        try:
            chunk = await anext(self._chunks, None)
            frames = self._sse.feed(chunk) if chunk is not None else self._sse.close()
        except HttpFailure as failure:
            raise StreamDisconnected(IDLE if failure.fault is Fault.IDLE else DISCONNECTED) from failure
        except FrameTooLong as error:
            raise ModelError(
                "The provider sent an event of more than 256 MB; it was not read to its end."
            ) from error
        for frame in frames:
            decoder.decode(frame, events)
        if chunk is None:
            self._ended = True
            decoder.end(events)

    async def drain(self) -> None:
        """Read what is left of the response and forget it."""
        try:
            async for _ in self._chunks:
                pass
        except HttpFailure:
            pass
