"""Yields one response as batches of events: one batch per piece of the body, unless it has very many events.

The pieces are of bounded size, and other tasks run between them, as `HttpResponse.chunks` promises.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from itertools import islice
from typing import Protocol

from app_server.engine.http.interface import Fault, HttpFailure
from app_server.engine.http.sse import MAX_EVENT_BYTES, EventTooLong, SseDecoder, SseFrame
from app_server.engine.model.event_json import MAX_ANSWER_BYTES
from app_server.engine.model.model_errors import DISCONNECTED, IDLE, ResponseTooLarge, excerpt
from app_server.engine.model.prompt import Completed, ModelEvent
from app_server.engine.support.engine_errors import ModelError, StreamDisconnected
from app_server.engine.support.worker_threads import PIECE_STEPS, YieldBudget
from app_server_protocol.engine.token_usage import TokenUsage


class WireDecoder(Protocol):
    """Decodes the frames of one API into events."""

    completed: bool

    def decode(self, frame: SseFrame, out: list[ModelEvent]) -> None: ...

    def end(self, out: list[ModelEvent]) -> None: ...


class EventStream:
    """Yields non-empty batches in order. It ends after `Completed`, or raises after all events before the failure."""

    def __init__(
        self,
        chunks: AsyncIterator[bytes],
        decoder: WireDecoder,
        first: list[ModelEvent],
        *,
        is_document: bool = False,
    ) -> None:
        """`is_document`: the answer is one JSON document instead of events, from a server that does not stream."""
        self._chunks, self._decoder = chunks, decoder
        self._document = bytearray() if is_document else None
        self._first = first
        self._sse = SseDecoder()
        self._frames: Iterator[SseFrame] = iter(())
        self._size = 0
        self._budget = YieldBudget()
        self._failure: ModelError | None = None
        self._closed = self._ended = self._broke = False
        self.usage: TokenUsage | None = None
        """Token usage of the complete answer; None until then."""

    @property
    def is_blank(self) -> bool:
        """Whether the answer or its connection has ended before the first byte."""
        return self._size == 0 and (self._closed or self._broke)

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
                # The events before the failure are returned first.
                self._failure = error
            if events:
                if isinstance(events[-1], Completed):
                    self.usage = events[-1].usage
                return events

    async def _next(self, events: list[ModelEvent]) -> None:
        """Decode a bounded number of frames. Other tasks run first if much was decoded since they last ran."""
        frames = list(islice(self._frames, PIECE_STEPS))
        if not frames and not self._closed:
            await self._feed()
            frames = list(islice(self._frames, PIECE_STEPS))
        if frames:
            await self._budget.spend(0, len(frames))
            for frame in frames:
                self._decoder.decode(frame, events)
        elif self._closed:
            self._ended = True
            try:
                self._decoder.end(events)
            except StreamDisconnected as error:
                if self._document is None:
                    raise
                quoted = excerpt(self._document.decode("utf-8", "replace"))
                text = f"The provider answered with JSON instead of an event stream: {quoted}"
                raise ModelError(text) from error

    async def _feed(self) -> None:
        """Split the next piece of the answer, or its end, into frames."""
        try:
            piece = await anext(self._chunks, None)
        except HttpFailure as failure:
            self._broke = failure.fault is Fault.CUT
            raise _stream_failure(failure) from failure
        self._closed = piece is None
        self._size += len(piece or b"")
        if self._size > MAX_ANSWER_BYTES:
            raise ResponseTooLarge(f"an answer of more than {MAX_ANSWER_BYTES >> 20} MiB")
        if self._document is not None:
            self._document += piece or b""
            self._frames = iter([SseFrame("", bytes(self._document))] if piece is None else [])
            return
        try:
            self._frames = iter(self._sse.close() if piece is None else self._sse.feed(piece))
        except EventTooLong as error:
            raise ResponseTooLarge(f"an event of more than {MAX_EVENT_BYTES >> 20} MiB") from error
        await self._budget.spend(len(piece or b""))

    async def drain(self) -> None:
        """Read and discard the rest of the response."""
        try:
            async for _ in self._chunks:
                pass
        except HttpFailure:
            pass


def _stream_failure(failure: HttpFailure) -> ModelError:
    """Return the error of a failure. A retry may help, unless the server itself sends data that is not accepted."""
    match failure.fault:
        case Fault.IDLE:
            return StreamDisconnected(IDLE)
        case Fault.TOO_LARGE:
            return ResponseTooLarge(failure.reason)
        case Fault.ENCODED:
            return ModelError(f"The model's provider sent {failure.reason}.")
        case _:
            return StreamDisconnected(DISCONNECTED)
