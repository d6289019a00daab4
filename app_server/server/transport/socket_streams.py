"""A connected socket as a stream of bytes, lines over any such stream, and a bound for the incomplete messages of all
clients of one server together.

The socket is used directly; no bytes are read before a caller asks for them.
"""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import suppress

import anyio
import anyio.lowlevel
from anyio.abc import ByteStream

from app_server_protocol.framing import DEFAULT_LINE_LIMIT, LineDecoder, Oversized, TransportClosed

READ_SIZE = 1 << 16

SHORT_BYTES = 1 << 20
"""Maximum size of a message that needs no slot, in bytes."""
ALL_BYTES = 256 << 20
"""Maximum size of all incomplete long messages together, in bytes."""
PATIENCE = 10
"""Time for which a client waits for a slot without being read, in seconds."""


class SocketStream(ByteStream):
    """One end of a connection. Tasks that use it have to end before it is closed."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.socket = connection

    async def receive(self, max_bytes: int = READ_SIZE) -> bytes:
        await anyio.lowlevel.checkpoint()  # a client that sends endlessly must not delay others
        while True:
            try:
                data = self.socket.recv(max_bytes)
            except BlockingIOError:
                await anyio.wait_readable(self.socket)
                continue
            except OSError as error:
                raise anyio.BrokenResourceError from error
            if not data:
                raise anyio.EndOfStream
            return data

    async def send(self, item: bytes) -> None:
        rest = memoryview(item)
        while rest:
            try:
                rest = rest[self.socket.send(rest) :]
            except BlockingIOError:
                await anyio.wait_writable(self.socket)
            except OSError as error:
                raise anyio.BrokenResourceError from error

    async def send_eof(self) -> None:
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)

    async def aclose(self) -> None:
        self.socket.close()


class LongMessageLimiter:
    """The slots for long messages of one server. Slots are counted, not bytes: a message that has a slot can always
    end, so there is no deadlock.
    """

    def __init__(self, limit: int) -> None:
        """Make the slots. `limit` is the maximum size of one message, in bytes."""
        self._free = anyio.Semaphore(max(1, ALL_BYTES // limit), fast_acquire=True)

    def connection(self) -> LongMessageSlot:
        return LongMessageSlot(self._free)


class LongMessageSlot:
    """Room for the messages of one connection: it has at most one slot, while it receives a long message."""

    def __init__(self, free: anyio.Semaphore | None = None) -> None:
        """Begin without a slot. Without `free` there is always room, because the client has the server for itself."""
        self._free, self.is_taken = free, False

    async def is_enough_for(self, size: int) -> bool:
        """Take or release the slot for a message of which `size` bytes were received; wait for a slot if one is needed.
        Return whether there is room.
        """
        if size <= SHORT_BYTES:
            self.leave()
        elif not self.is_taken and self._free is not None:
            with anyio.move_on_after(PATIENCE):
                await self._free.acquire()
                self.is_taken = True
            return self.is_taken
        return True

    def leave(self) -> None:
        if self.is_taken and self._free is not None:
            self.is_taken = False
            self._free.release()


class StreamTransport:
    """Lines in both directions over a stream."""

    def __init__(
        self,
        stream: ByteStream,
        limit: int = DEFAULT_LINE_LIMIT,
        *,
        unread: bytes = b"",
        slot: LongMessageSlot | None = None,
    ) -> None:
        """Begin to read with `unread`, the bytes that were received before. The caller closes `stream`."""
        self._stream, self._unread, self._slot = stream, unread, slot or LongMessageSlot()
        self._decoder = LineDecoder(limit)

    async def lines(self) -> AsyncIterator[list[bytes | Oversized]]:
        decoder = self._decoder
        data = self._unread or await self._receive()
        self._unread = b""
        while data:
            if lines := decoder.feed(data):
                yield lines
            if not await self._slot.is_enough_for(decoder.held):
                decoder.drop()
            data = await self._receive()

    async def _receive(self) -> bytes:
        try:
            return await self._stream.receive(READ_SIZE)
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            return b""

    async def write(self, data: bytes) -> None:
        try:
            await self._stream.send(data)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise TransportClosed from error

    async def close(self, code: int, reason: str) -> None:
        """End this direction, and wait until the other side has ended its own. Bytes that it sends until then are
        dropped. Lines have no form for the code and the reason.
        """
        await self._stream.send_eof()
        while await self._receive():
            pass
