"""A WebSocket as a transport: each text message is a line, each line a text message.

`websockets` parses and builds frames, without I/O. This module joins fragments, closes with a code and a reason if it
cannot accept a message, and pings a silent client. There is no compression: it costs time and memory, and a small
message could unpack to an endless one. The opening handshake is not here.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import suppress

import anyio
from anyio.abc import ByteStream
from websockets.frames import CloseCode, Frame, Opcode
from websockets.protocol import SEND_EOF, State
from websockets.server import ServerProtocol

from app_server.server.transport.socket_streams import LongMessageSlot
from app_server_protocol.framing import Oversized, TransportClosed

log = logging.getLogger(__name__)

UNFRAGMENTED = 16 << 20
"""Maximum size of a frame that is sent, in bytes: clients of codex accept no larger one."""
BATCH = 1 << 20
"""Size of messages above which they are written, in bytes."""
READ_SIZE = 1 << 16

PING_SECONDS = 30
"""Time without a message to the client after which it is sent a ping, in seconds."""
PONG_SECONDS = 60
"""Time without any bytes from the client after the ping until it counts as gone, in seconds."""
CLOSING_SECONDS = 5
"""Time for the client to close its end after a close frame, in seconds. Its input is read until then: a socket that is
closed with unread input may lose the close frame.
"""
MOST_PONGS = 1000
"""Maximum number of unsent pongs for a client that does not read; beyond it, its input waits, too."""


def server_protocol(line_limit: int) -> ServerProtocol:
    """Return the protocol of a new connection. It has no extensions, and does not use the library's own log, to which
    the library would write tokens and messages.
    """
    quiet = logging.getLogger(f"{__name__}.protocol")
    quiet.setLevel(logging.WARNING)
    return ServerProtocol(max_size=line_limit, logger=quiet)


LENGTHS = {126: 2, 127: 8}
"""Number of bytes of a frame's length field, by the value of the seven length bits in the frame's second byte."""
UNMASKED = bytes(4)


def frame_size(data: bytes | bytearray) -> int | None:
    """Return the size in bytes of the client's frame that `data` begins with; None if it is not known yet."""
    if len(data) < 2:
        return None
    length, more = data[1] & 0x7F, LENGTHS.get(data[1] & 0x7F, 0)
    if len(data) < 2 + more:
        return None
    if more:
        length = int.from_bytes(data[2 : 2 + more], "big")
    return 2 + more + len(UNMASKED) + length


class MessageDecoder:
    """Joins the frames of a client into messages, without I/O. If it refuses a message, the protocol has a close frame
    to send, and ignores all later input.
    """

    def __init__(self, protocol: ServerProtocol) -> None:
        self._protocol = protocol
        self._held = bytearray()
        """Fragments of an incomplete message, whose order and size the protocol checks."""
        self._frame = bytearray()
        """Beginning of an incomplete frame, which the protocol has, too."""
        self.pings = 0
        """Number of pings received so far; the protocol has a pong for each."""

    @property
    def held(self) -> int:
        """Number of bytes of an incomplete message."""
        return len(self._held) + len(self._frame)

    def _follow(self, data: bytes) -> None:
        """Add bytes, and keep those of the incomplete frame at their end."""
        self._frame += data
        start = 0
        while (size := frame_size(self._frame[start : start + 10])) and start + size <= len(self._frame):
            start += size
        del self._frame[:start]

    def feed(self, data: bytes) -> list[bytes | Oversized]:
        """Return the messages that `data` completes, in order. A message that is too large closes the connection, and
        is not returned.
        """
        self._follow(data)
        self._protocol.receive_data(data)
        out: list[bytes | Oversized] = []
        for event in self._protocol.events_received():
            assert isinstance(event, Frame), "the handshake is over"
            if event.opcode is Opcode.PING:
                self.pings += 1
            elif event.opcode is Opcode.BINARY:
                self.refuse(CloseCode.UNSUPPORTED_DATA, "expected text messages, got a binary one")
                break
            elif event.opcode in (Opcode.TEXT, Opcode.CONT):
                if not event.fin:
                    self._held += event.data
                    continue
                message = bytes(self._held + event.data) if self._held else bytes(event.data)
                self._held.clear()
                if not _is_utf8(message):
                    self.refuse(CloseCode.INVALID_DATA, "expected UTF-8 in a text message")
                    break
                out.append(message)
        return out

    def refuse(self, code: CloseCode, reason: str) -> None:
        """Drop the incomplete message, and close the connection."""
        self._held.clear()
        self._frame.clear()
        self._protocol.fail(code, reason)


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


class WebSocketTransport:
    """The server's end of an open WebSocket."""

    def __init__(
        self,
        stream: ByteStream,
        protocol: ServerProtocol,
        *,
        unread: bytes = b"",
        slot: LongMessageSlot | None = None,
    ) -> None:
        """Begin to read with `unread`, the bytes that were received with the handshake. The caller closes `stream`."""
        self._stream, self._protocol, self._unread = stream, protocol, unread
        self._slot = slot or LongMessageSlot()
        self._decoder = MessageDecoder(protocol)
        self._sending = anyio.Lock(fast_acquire=True)
        self._sent_at = anyio.current_time()
        self._torn = False
        """Whether a write was given up, perhaps in the middle of a frame, so that no other frame can follow."""

    # --- reading
    async def lines(self) -> AsyncIterator[list[bytes | Oversized]]:
        """Yield batches of messages as they arrive; end when the client closes, is refused or is gone."""
        decoder = self._decoder
        data = self._unread or await self._receive()
        answered = 0
        while data:
            messages = decoder.feed(data)
            # Input is read even while a client does not read its output: its pongs are sent after that output.
            if not self._sending.locked() or decoder.pings - answered > MOST_PONGS:
                await self._send_or_give_up()
                answered = decoder.pings
            if messages:
                yield messages
            if not await self._slot.is_enough_for(decoder.held):
                decoder.refuse(CloseCode.TRY_AGAIN_LATER, "others are sending long messages; try again")
            if self._protocol.state is not State.OPEN:
                break
            data = await self._receive()
        await self._leave()

    async def _receive(self) -> bytes:
        """Return more bytes, or none if the client has left or is gone. Any bytes show that the client is alive: it
        cannot send a pong in the middle of a large frame.
        """
        asked = False
        while True:
            patience = PONG_SECONDS if asked else self._sent_at + PING_SECONDS - anyio.current_time()
            if patience > 0:
                with anyio.move_on_after(patience):
                    return await self._receive_some()
            if asked:
                log.info("a client has answered no ping for %d seconds", PONG_SECONDS)
                self._protocol.fail(CloseCode.INTERNAL_ERROR, f"no pong for {PONG_SECONDS} seconds")
                return b""
            if self._sending.locked():  # the client has not read what it was sent
                self._sent_at = anyio.current_time()
            elif anyio.current_time() >= self._sent_at + PING_SECONDS:
                asked = True
                self._protocol.send_ping(b"")
                await self._send_or_give_up()

    async def _receive_some(self) -> bytes:
        try:
            return await self._stream.receive(READ_SIZE)
        except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            self._protocol.receive_eof()
            return b""

    # --- writing
    async def write(self, data: bytes) -> None:
        """Send lines as messages. Lines after a close frame are dropped: the client was notified of the end."""
        queued = 0
        for line in data.removesuffix(b"\n").split(b"\n"):
            for start in range(0, max(len(line), 1), UNFRAGMENTED):
                if self._protocol.state is not State.OPEN:
                    return
                fragment, last = line[start : start + UNFRAGMENTED], start + UNFRAGMENTED >= len(line)
                send = self._protocol.send_continuation if start else self._protocol.send_text
                send(fragment, fin=last)
                queued += len(fragment)
                if queued >= BATCH:
                    await self._send_queued()
                    queued = 0
        await self._send_queued()

    async def _send_queued(self) -> None:
        """Send the frames that the protocol has queued, including those that other tasks queue while this one waits for
        the client.
        """
        async with self._sending:
            while chunks := self._protocol.data_to_send():
                if self._torn:
                    raise TransportClosed
                self._torn = True
                try:
                    if data := b"".join(chunks):
                        await self._stream.send(data)
                    if chunks[-1] == SEND_EOF:
                        await self._stream.send_eof()
                except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError) as error:
                    raise TransportClosed from error
                self._torn = False
                self._sent_at = anyio.current_time()

    async def _send_or_give_up(self) -> None:
        with suppress(TransportClosed):  # the next read reports the end
            await self._send_queued()

    # --- the end
    async def close(self, code: int, reason: str) -> None:
        """Send a close frame and wait until the client has left, for a bounded time. Only for a transport whose `lines`
        no task reads.
        """
        if self._protocol.state is State.OPEN:
            self._protocol.send_close(code, reason)
        await self._leave()

    async def _leave(self) -> None:
        with anyio.move_on_after(CLOSING_SECONDS):
            await self._send_or_give_up()
            while self._protocol.state is not State.CLOSED:
                if data := await self._receive_some():
                    self._protocol.receive_data(data)
                    self._protocol.events_received()  # discarded
                await self._send_or_give_up()
