"""A connected socket as a stream of bytes, and lines over any such stream.

The socket is used directly, and nothing is read ahead of who asks for it: what was not asked for is still in the
system's buffer, where another program finds it that takes the socket over.
"""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import suppress

import anyio
import anyio.lowlevel
from anyio.abc import ByteStream

from app_server.transport.framing import DEFAULT_LINE_LIMIT, LineDecoder, Oversized, TransportClosed
from app_server.transport.long_messages import Room

READ_SIZE = 1 << 16


class SocketStream(ByteStream):
    """One end of a connection. Whoever closes it has ended the tasks that use it."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.socket = connection
        self._resumed: anyio.Event | None = None
        self.awaits = False
        """Whether somebody waits here for more bytes, and so has taken care of those before."""

    async def receive(self, max_bytes: int = READ_SIZE) -> bytes:
        await anyio.lowlevel.checkpoint()  # whoever sends without end does not keep others waiting
        self.awaits = True
        try:
            return await self._receive(max_bytes)
        finally:
            self.awaits = False

    def pause(self) -> None:
        """Read no further byte from this moment on; all that come are left in the system's buffer."""
        self._resumed = self._resumed or anyio.Event()

    def resume(self) -> None:
        if self._resumed is not None:
            self._resumed.set()
            self._resumed = None

    async def _receive(self, max_bytes: int) -> bytes:
        while True:
            while self._resumed is not None:
                await self._resumed.wait()
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

    @property
    def begun(self) -> bytes | None:
        """Return the beginning of a line, of which the end has not come; None where the line is dropped."""
        return self._decoder.begun

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
