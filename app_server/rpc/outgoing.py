"""Everything that goes to the client passes here: one queue, one writer, so lines never mix.

Sending never waits; whoever can produce without end asks for `room()` first and so is held back while the
client does not read.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable

import anyio

from app_server.rpc.errors import RpcError
from app_server.rpc.pending import ClientReply, PendingRequests, Waiter
from protocol.base import Json
from protocol.jsonrpc import RequestId, dump_error, dump_notification, dump_request, dump_response

log = logging.getLogger(__name__)


class Outgoing:
    """The sending half of a connection."""

    def __init__(self, write: Callable[[bytes], Awaitable[None]], high_water: int) -> None:
        """Producers are held back while more bytes than `high_water` wait for the client."""
        self._write = write
        self._high_water = high_water
        self._queue: list[bytes] = []
        self._queued = 0
        self._sent = self._written = 0
        # Who waits for what; events are made only by those who do wait, since most of the time nobody has to.
        self._writing: anyio.Event | None = None
        self._draining: anyio.Event | None = None
        self._waiting: deque[anyio.Event] = deque()
        """Who waits for room, first come first."""
        self._ended = anyio.Event()
        self._closed = False
        self.pending = PendingRequests()

    # --- sending
    def respond(self, id: RequestId, result: bytes) -> None:
        self.send(dump_response(id, result))

    def fail(self, id: RequestId | None, error: RpcError) -> None:
        self.send(dump_error(id, error.code, error.message, error.data))

    def notify(self, method: str, params: bytes) -> None:
        self.send(dump_notification(method, params))

    async def request(self, method: str, params: bytes) -> ClientReply:
        """Ask the client; returns its answer, or an error once the connection ends."""
        waiter = self.pending.register()
        try:
            self.send_request(waiter, method, params)
            return await waiter.wait()
        finally:
            self.pending.forget(waiter)

    def send_request(self, waiter: Waiter, method: str, params: bytes) -> None:
        """Sends a registered request; again, under the same id, where it was sent before."""
        self.send(dump_request(waiter.id, method, params))

    def send(self, line: bytes) -> None:
        """Queue one message, without its line end."""
        if self._closed:
            return
        self._queue.append(line)
        self._sent += 1
        self._queued += len(line) + 1
        if self._writing is not None:
            self._writing.set()

    # --- being held back
    @property
    def congested(self) -> bool:
        return self._queued > self._high_water

    async def room(self) -> None:
        """Returns once the client has read enough; at once as a rule.

        Those who wait go one after another, in the order in which they came. So a producer that never ends cannot keep
        the reader of stdin, and with it an interrupt, waiting.
        """
        if not self._waiting and not self.congested:
            return
        turn = anyio.Event()
        self._waiting.append(turn)
        try:
            while not self._closed and (self._waiting[0] is not turn or self.congested):
                await turn.wait()
                if turn.is_set() and not self._closed and self.congested:
                    # Somebody who need not wait was quicker. The place is kept.
                    self._waiting[0] = turn = anyio.Event()
        finally:
            self._waiting.remove(turn)
            self._let_next_go()

    def _let_next_go(self) -> None:
        if self._waiting and (self._closed or not self.congested):
            self._waiting[0].set()

    async def written(self) -> None:
        """Returns once everything sent so far has left, so that what comes next arrives apart from it."""
        last = self._sent
        while self._written < last and not self._closed:
            await self._until_drained()

    async def _until_drained(self) -> None:
        """Returns once something more was written."""
        if self._draining is None:
            self._draining = anyio.Event()
        await self._draining.wait()

    # --- the writer
    async def run(self) -> None:
        """Write until `close`; everything queued by then is written. Raises TransportClosed."""
        try:
            while True:
                if not self._queue and not self._closed:
                    self._writing = anyio.Event()
                    await self._writing.wait()
                    self._writing = None
                await self._write_queue()
                if self._closed:
                    return
        finally:
            self._ended.set()

    async def _write_queue(self) -> None:
        while self._queue:
            batch, size = self._queue, self._queued
            self._queue = []
            batch.append(b"")
            await self._write(b"\n".join(batch))
            self._queued -= size
            self._written += len(batch) - 1
            self._tell_drained()

    def _tell_drained(self) -> None:
        if self._draining is not None:
            self._draining.set()
            self._draining = None
        self._let_next_go()

    def close(self) -> None:
        """No more messages; the writer ends once the queue is empty, and nobody waits for answers any more."""
        self._closed = True
        if self._writing is not None:
            self._writing.set()
        self._tell_drained()
        self.pending.settle_all(ClientReply(error="the connection was closed"))

    async def finish(self) -> None:
        """Close, and wait until the writer has written what was queued or has given up."""
        self.close()
        await self._ended.wait()


def describe(result: Json) -> str:
    """A short form of a client's answer, for the log."""
    text = repr(result)
    return text if len(text) <= 200 else text[:200] + "…"
