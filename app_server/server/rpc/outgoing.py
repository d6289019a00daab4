"""All output to the client: one queue with one writer, so that lines never mix, and the requests that wait for a
response.

Register a request before sending it, resolve it once, settle all requests at the end.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Hashable

import anyio
import msgspec
from msgspec import Struct

from app_server.server.rpc.backlog import SendBuffer, TextSource
from app_server_protocol.encoding import Json
from app_server_protocol.jsonrpc import (
    RequestId,
    dump_error,
    dump_notification,
    dump_request,
    dump_response,
    with_version,
)
from app_server_protocol.rpc_errors import RpcError


class ClientReply(Struct, frozen=True):
    """The client's result, or an error text."""

    result: Json = None
    error: str | None = None
    gone: bool = False
    """Whether the client has left, so that there is no answer."""


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
        self.next_id = 0
        self._waiters: dict[int, Waiter] = {}

    def __len__(self) -> int:
        return len(self._waiters)

    def register(self) -> Waiter:
        waiter = Waiter(self.next_id)
        self.next_id += 1
        self._waiters[waiter.id] = waiter
        return waiter

    def resolve(self, id: int | str, reply: ClientReply) -> bool:
        """Give a reply to the task that waits for it. Return False if no request has that id, which a faulty client can
        cause.
        """
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
"""Size from which a write is a large batch, in bytes; the output of a command can make larger ones."""


WRITE_BYTES = 1 << 18
"""Approximate maximum size of the lines in one write, in bytes: lines that are not written yet can still be dropped,
and those of texts are not made yet.
"""


class SlowClientLimit(Struct, frozen=True):
    """Bound for how far a client may fall behind."""

    most_unasked: int
    """Maximum size of queued lines that the client did not request, in bytes. Texts of marks do not count."""
    over: Callable[[], None]
    """Function that is called if a further message is sent above the maximum; it closes the queue."""
    clock: Callable[[], float]
    """Function that returns monotonic seconds."""


class CapacityGate:
    """A fair queue of tasks that wait for capacity."""

    def __init__(self, is_there: Callable[[], bool]) -> None:
        self._is_there = is_there
        self._waiting: deque[anyio.Event] = deque()
        """Events of the waiting tasks, in order of arrival."""

    async def wait(self) -> None:
        """Wait until there is capacity, and every task that came before has continued."""
        if not self._waiting and self._is_there():
            return
        waiter = anyio.Event()
        self._waiting.append(waiter)
        try:
            while self._waiting[0] is not waiter or not self._is_there():
                await waiter.wait()
                if waiter.is_set() and not self._is_there():
                    # A task that did not wait has used the capacity. This task keeps its position.
                    self._waiting[0] = waiter = anyio.Event()
        finally:
            self._waiting.remove(waiter)
            self.release_next()

    def release_next(self) -> None:
        """Release the first task, if there is capacity."""
        if self._waiting and self._is_there():
            self._waiting[0].set()


class OutboundQueue:
    """The sending half of a connection."""

    def __init__(
        self,
        write: Callable[[bytes], Awaitable[None]],
        high_water: int,
        *,
        jsonrpc: bool = False,
        after_large_batch: Callable[[], None] = lambda: None,
        patience: SlowClientLimit | None = None,
    ) -> None:
        """Begin with an empty queue. Producers wait while more than `high_water` bytes are queued. `jsonrpc` says
        whether messages name their version, which clients of some APIs require. `after_large_batch` is called when the
        queue is empty after a large batch. Without `patience` a client that does not read is never disconnected.
        """
        self._write = write
        self._after_large_batch = after_large_batch
        self.high_water = high_water
        """Size above which the client is behind, in bytes."""
        self._jsonrpc = jsonrpc
        self._patience = patience
        self._backlog = SendBuffer()
        self._in_hand = 0
        """Size of the lines that are being written, in bytes."""
        self.writing_since: float | None = None
        """Time since which lines are being written, by the clock of `patience`; None if none are."""
        # Created only when the writer has to wait.
        self._writing: anyio.Event | None = None
        self._capacity = CapacityGate(lambda: self._closed or not self.congested)
        self._ended = anyio.Event()
        self._closed = False
        self.pending = PendingRequests()

    # --- sending
    def respond(self, id: RequestId, result: bytes, *, ends_write: bool = False) -> None:
        """Queue a response. `ends_write`: what is queued behind it goes into a later write."""
        self._answer(dump_response(id, result), ends_write=ends_write)

    def fail(self, id: RequestId | None, error: RpcError) -> None:
        self._answer(dump_error(id, error.code, error.message, error.data))

    def notify(self, method: str, params: bytes) -> None:
        self.send(dump_notification(method, params))

    async def request(self, method: str, params: bytes) -> ClientReply:
        """Send a request to the client; return its response, or an error at the end of the connection."""
        waiter = self.pending.register()
        try:
            self.send_request(waiter, method, params)
            return await waiter.wait()
        finally:
            self.pending.forget(waiter)

    def send_request(self, waiter: Waiter, method: str, params: bytes) -> None:
        """Send a registered request; a request that was sent before is sent again under the same id."""
        if self._closed:
            waiter.settle(GONE)
        self.send(dump_request(waiter.id, method, params))

    def send(self, line: bytes, *, further: bool = False) -> None:
        """Queue one message, without its line end. `further`: whether it belongs to the event of the last one."""
        if self._takes_more(further):
            self._backlog.add(line)
            self._added()

    def send_text(self, source: TextSource, start: int, before: int, *, further: bool = False) -> None:
        """Send a text from `start` on, until another message is queued. `before`: size of the lines until there."""
        if not self._backlog.is_sending(source) and self._takes_more(further):
            self._backlog.add_text(source, start, before)
            self._added()

    def send_state(self, of: Hashable, line: bytes, *, further: bool = False) -> None:
        """Queue a message that reports a state; it replaces the earlier one if the client is behind."""
        if self._takes_more(further):
            self._backlog.add_state(of, line, last_only=self.congested)
            self._added()

    def send_all(self, messages: SendBuffer) -> None:
        """Queue the messages of another queue, in their order."""
        if messages and self._takes_more():
            self._backlog.adopt(messages)
            self._added()

    def _answer(self, line: bytes, *, ends_write: bool = False) -> None:
        if not self._closed:
            self._backlog.add_answer(line, ends_write=ends_write)
            self._added()

    def _takes_more(self, further: bool = False) -> bool:
        """Return whether the queue is open. Only before an event is it closed because it is above the bound."""
        patience = self._patience
        if not further and patience is not None and self._backlog.unasked > patience.most_unasked:
            patience.over()
        return not self._closed

    def _added(self) -> None:
        if self._writing is not None:
            self._writing.set()

    # --- back-pressure
    @property
    def unread(self) -> int:
        """Number of bytes that are held for the client and that it has not read yet."""
        return self._backlog.held + self._in_hand

    @property
    def congested(self) -> bool:
        return self._backlog.size + self._in_hand > self.high_water

    async def wait_for_capacity(self) -> None:
        """Wait until the client has read enough; usually returns at once.

        Waiting tasks continue one by one in order of arrival. So an endless producer cannot starve the reader of stdin,
        and with it an interrupt.
        """
        await self._capacity.wait()

    # --- the writer
    async def write_queued(self) -> None:
        """Write the queue until `close`, including all messages queued by then. Raises TransportClosed."""
        largest = 0
        """Largest size of the queue since it was empty, in bytes."""
        try:
            while True:
                if self._backlog:
                    largest = max(largest, self._backlog.size)
                    lines = self._backlog.take(WRITE_BYTES, joined=self.congested)
                    if lines:
                        if self._jsonrpc:
                            lines[:] = map(with_version, lines)
                        lines.append(b"")
                        data = b"\n".join(lines)
                        lines.clear()  # else they would be in memory twice while the client reads
                        self._in_hand = len(data)
                        if self._patience is not None:
                            self.writing_since = self._patience.clock()
                        await self._write(data)
                        del data  # else it would be in memory while the client reads the next lines
                        self._in_hand, self.writing_since = 0, None
                    self._capacity.release_next()
                    continue
                if largest > LARGE_BATCH:
                    self._after_large_batch()
                if self._closed:
                    return
                largest, self._writing = 0, anyio.Event()
                await self._writing.wait()
                self._writing = None
        finally:
            self._ended.set()

    def close(self) -> None:
        """Accept no more messages; the writer ends once the queue is empty, and pending requests end with an error."""
        self._closed = True
        if self._writing is not None:
            self._writing.set()
        self._capacity.release_next()
        self.pending.settle_all(GONE)

    def cut(self, last: bytes) -> None:
        """Drop the queue, except the lines that are being written, and close it after one last message."""
        self._backlog.clear()
        self._answer(last)
        self.close()

    async def finish(self) -> None:
        """Close, and wait until the writer has written the queue or failed."""
        self.close()
        await self._ended.wait()


def describe(result: Json) -> str:
    """Shorten a client's response, for the log."""
    text = repr(result)
    return text if len(text) <= 200 else text[:200] + "…"
