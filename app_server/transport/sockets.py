"""A connected socket as a stream of bytes, lines over any such stream, and a bound for what the clients of one server
together may have sent of messages that have not ended.

The socket is used directly, and nothing is read ahead of who asks for it.
"""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import suppress

import anyio
import anyio.lowlevel
from anyio.abc import ByteStream

from app_server.transport.framing import DEFAULT_LINE_LIMIT, LineDecoder, Oversized, TransportClosed

READ_SIZE = 1 << 16

SHORT_BYTES = 1 << 20
"""A message that is no longer than this needs no place."""
ALL_BYTES = 256 << 20
"""Of all long messages together that have not ended."""
PATIENCE = 10
"""Seconds that a client waits for a place, unread."""


class SocketStream(ByteStream):
    """One end of a connection. Whoever closes it has ended the tasks that use it."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.socket = connection

    async def receive(self, max_bytes: int = READ_SIZE) -> bytes:
        await anyio.lowlevel.checkpoint()  # whoever sends without end does not keep others waiting
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


class LongMessages:
    """The places of one server. Bytes are not counted, but places for long messages: a message that was let in can
    always end, so nobody waits for somebody who waits.
    """

    def __init__(self, limit: int) -> None:
        """`limit` is that of the bytes of one message."""
        self._free = anyio.Semaphore(max(1, ALL_BYTES // limit), fast_acquire=True)

    def connection(self) -> Room:
        return Room(self._free)


class Room:
    """Room for the messages of one connection: it has at most one place, while a long message comes."""

    def __init__(self, free: anyio.Semaphore | None = None) -> None:
        """Without `free` there is always one: its client has the server for itself."""
        self._free, self.is_taken = free, False

    async def is_enough_for(self, size: int) -> bool:
        """Take or give back the place for a message of which `size` bytes have come; wait for one where that is needed.
        Return whether there is one.
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
        room: Room | None = None,
    ) -> None:
        """`unread` are bytes that were received before. Closing `stream` is left to the caller."""
        self._stream, self._unread, self._room = stream, unread, room or Room()
        self._decoder = LineDecoder(limit)

    async def lines(self) -> AsyncIterator[list[bytes | Oversized]]:
        decoder = self._decoder
        data = self._unread or await self._receive()
        self._unread = b""
        while data:
            if lines := decoder.feed(data):
                yield lines
            if not await self._room.is_enough_for(decoder.held):
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
        """End this direction, and wait until the other side has ended its own. What it sends until then is dropped, and
        lines have no words for the reason.
        """
        await self._stream.send_eof()
        while await self._receive():
            pass
