"""All output to the client: one queue with one writer, so that lines never mix, and the requests that wait for a
response.

Register a request before sending it, resolve it once, settle all of them at the end.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable

import anyio
import msgspec
from msgspec import Struct

from app_server.rpc.errors import RpcError
from protocol.jsonrpc import RequestId, dump_error, dump_notification, dump_request, dump_response
from protocol.names import with_version
from protocol.structs import Json


class ClientReply(Struct, frozen=True):
    """The client's result, or an error text."""

    result: Json = None
    error: str | None = None
    gone: bool = False
    """The client has left: that is no answer."""


GONE = ClientReply(error="the connection was closed", gone=True)


class Waiter(Struct):
    """One pending request; `wait` returns at its response or at the end of the connection."""

    id: int
    _done: anyio.Event = msgspec.field(default_factory=anyio.Event)
    _reply: ClientReply | None = None

    def settle(self, reply: ClientReply) -> None:
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
        """Hand a reply to who waits for it; return False if no request has that id, which a faulty client can cause."""
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


log = logging.getLogger(__name__)

LARGE_BATCH = 1 << 20
"""Bytes in one write; the output of a command can make more."""


class Outgoing:
    """The sending half of a connection."""

    def __init__(
        self,
        write: Callable[[bytes], Awaitable[None]],
        high_water: int,
        *,
        jsonrpc: bool = False,
        after_large_batch: Callable[[], None] = lambda: None,
    ) -> None:
        """Producers wait while more than `high_water` bytes are queued. `jsonrpc`: messages name their version, which
        clients of some APIs require. `after_large_batch` is called when the queue is empty after a large one.
        """
        self._write = write
        self._after_large_batch = after_large_batch
        self._high_water = high_water
        self._jsonrpc = jsonrpc
        self._queue: list[bytes] = []
        self._queued = 0
        self._sent = self._written = 0
        # Created only by a task that has to wait, since most of the time no task has to.
        self._writing: anyio.Event | None = None
        self._draining: anyio.Event | None = None
        self._waiting: deque[anyio.Event] = deque()
        """Tasks that wait for capacity, in order of arrival."""
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
        """Send a request to the client; returns its response, or an error at the end of the connection."""
        waiter = self.pending.register()
        try:
            self.send_request(waiter, method, params)
            return await waiter.wait()
        finally:
            self.pending.forget(waiter)

    def send_request(self, waiter: Waiter, method: str, params: bytes) -> None:
        """Sends a registered request; again, under the same id, where it was sent before."""
        if self._closed:
            waiter.settle(GONE)
        self.send(dump_request(waiter.id, method, params))

    def send(self, line: bytes) -> None:
        """Queue one message, without its line end."""
        if self._closed:
            return
        if self._jsonrpc:
            line = with_version(line)
        self._queue.append(line)
        self._sent += 1
        self._queued += len(line) + 1
        if self._writing is not None:
            self._writing.set()

    # --- back-pressure
    @property
    def unread(self) -> int:
        """The bytes that are queued."""
        return self._queued

    @property
    def congested(self) -> bool:
        return self._queued > self._high_water

    async def wait_for_capacity(self) -> None:
        """Wait until the client has read enough; usually returns at once.

        Waiting tasks continue one by one in order of arrival. So an endless producer cannot starve the reader of stdin,
        and with it an interrupt.
        """
        if not self._waiting and not self.congested:
            return
        waiter = anyio.Event()
        self._waiting.append(waiter)
        try:
            while not self._closed and (self._waiting[0] is not waiter or self.congested):
                await waiter.wait()
                if waiter.is_set() and not self._closed and self.congested:
                    # A task that did not wait has used the capacity. This one keeps its position.
                    self._waiting[0] = waiter = anyio.Event()
        finally:
            self._waiting.remove(waiter)
            self._release_next()

    def _release_next(self) -> None:
        if self._waiting and (self._closed or not self.congested):
            self._waiting[0].set()

    async def written(self) -> None:
        """Wait until everything sent so far was written, so that later lines go into another write."""
        last = self._sent
        while self._written < last and not self._closed:
            await self._until_drained()

    async def _until_drained(self) -> None:
        """Wait for the next write."""
        if self._draining is None:
            self._draining = anyio.Event()
        await self._draining.wait()

    # --- the writer
    async def write_queued(self) -> None:
        """Write the queue until `close`, including everything queued by then. Raises TransportClosed."""
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
        largest = 0
        while self._queue:
            batch, size = self._queue, self._queued
            self._queue = []
            lines = len(batch)
            batch.append(b"")
            data = b"\n".join(batch)
            batch.clear()  # or it would all be held twice while the client reads
            await self._write(data)
            del data
            self._queued -= size
            self._written += lines
            self._notify_drained()
            largest = max(largest, size)
        if largest > LARGE_BATCH:
            self._after_large_batch()

    def _notify_drained(self) -> None:
        if self._draining is not None:
            self._draining.set()
            self._draining = None
        self._release_next()

    def close(self) -> None:
        """Accept no more messages; the writer ends once the queue is empty, and pending requests end with an error."""
        self._closed = True
        if self._writing is not None:
            self._writing.set()
        self._notify_drained()
        self.pending.settle_all(GONE)

    async def finish(self) -> None:
        """Close, and wait until the writer has written the queue or failed."""
        self.close()
        await self._ended.wait()


def describe(result: Json) -> str:
    """Shorten a client's response, for the log."""
    text = repr(result)
    return text if len(text) <= 200 else text[:200] + "…"
