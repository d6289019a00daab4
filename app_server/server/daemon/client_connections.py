"""The clients of a process, each from its first byte until it leaves.

The first bytes of a client show its protocol: lines, HTTP, or the preface of a proxy. A connection that sends other
bytes, too many, or none for too long is closed.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from typing import TYPE_CHECKING

import anyio
import msgspec
from msgspec import Struct

from app_server.engine.support.worker_threads import run_in_thread
from app_server.server.composition import ServedConnection, Server
from app_server.server.daemon.listeners import Listener
from app_server.server.daemon.peer_credentials import is_from_own_work, is_own_work, peer_of
from app_server.server.proxy.connect import BEGINNING_OF_ANY, MOST_BYTES
from app_server.server.server_settings import ClientSettings
from app_server.server.transport.socket_streams import LongMessageSlot, SocketStream, StreamTransport
from app_server_protocol.framing import Transport

if TYPE_CHECKING:
    from app_server.server.transport.websocket import WebSocketTransport

    ClosingTransport = StreamTransport | WebSocketTransport

log = logging.getLogger(__name__)

LEAVES_WITHIN = 2
"""Time for a client to read the last output and leave, in seconds."""

GOING_AWAY = 1001
"""Close code of a WebSocket whose server ends."""
TRY_AGAIN_LATER = 1013
"""Close code of a WebSocket whose client did not read."""

MOST_WAITING = 1 << 16
"""Size of an incomplete first line from which the client counts as one that speaks lines, in bytes."""


class WireProtocol(Enum):
    LINES = "lines"
    HTTP = "HTTP"
    PREFACE = "a preface"


class UnknownProtocol(Exception):
    """The first bytes belong to no protocol that is served here."""


def speech_of(said: bytes | bytearray, has_line: bool) -> WireProtocol | None:
    """Return the protocol of a new connection; None if it is not known yet. `has_line` says whether its first line is
    complete. Raises UnknownProtocol.
    """
    if not said:
        return None
    if said.startswith(b"G"):
        return WireProtocol.HTTP
    if not said.startswith(b"{"):
        raise UnknownProtocol
    if said.startswith(BEGINNING_OF_ANY):
        if len(said) > MOST_BYTES and said.find(b"\n", 0, MOST_BYTES) < 0:
            raise UnknownProtocol
        return WireProtocol.PREFACE if has_line else None
    if has_line or len(said) > MOST_WAITING:
        return WireProtocol.LINES
    return None


def speech_after_preface(said: bytes | bytearray, has_line: bool) -> WireProtocol | None:
    """Return the protocol of the client behind a proxy; None if it is not known yet. Its first line may be any, and
    need not be complete.
    """
    if not said:
        return None
    return WireProtocol.HTTP if said.startswith(b"G") else WireProtocol.LINES


class ClientConnection(Struct, eq=False, kw_only=True):
    """A client; one that did not connect to a door is the process that has started this one."""

    number: int
    since: float
    """Time of the connection, in seconds since 1970."""
    pid: int | None = None
    scope: anyio.CancelScope = msgspec.field(default_factory=anyio.CancelScope)
    is_guest: bool = False
    """Whether the client may enter, and counts as a client; if not, it has yet to identify itself, or only sends a
    request of `daemon`.
    """
    asks: bool = False
    """Whether the connection is not a client's, but a request of `daemon`."""
    served: ServedConnection | None = None
    """The connection while the server serves it; None before and after."""
    farewell: tuple[int, str] = (GOING_AWAY, "server shutting down")
    """Close code and reason for a WebSocket when it is no longer served."""

    @property
    def at_rest(self) -> bool:
        """Whether no request of the client is in work, and all its output was written."""
        return self.served is None or self.served.at_rest

    async def serve(self, server: Server, transport: Transport, place: ClientSettings) -> None:
        """Serve the client over its transport."""

        def joined(served: ServedConnection) -> None:
            self.served = served

        try:
            notice = await server.serve(transport, place, joined=joined)
        finally:
            self.served = None
        if notice is not None:
            self.farewell = TRY_AGAIN_LATER, notice

    async def end(self) -> None:
        """Let the client read the last output."""


class SocketConnection(ClientConnection, kw_only=True, eq=False):
    """A client that has connected to a door."""

    door: Listener
    stream: SocketStream
    is_known: bool = False
    """Whether the client has shown that it may connect: by its user, or by a token."""
    said: bytearray = msgspec.field(default_factory=bytearray)
    """Bytes that were received and are not served yet."""
    transport: ClosingTransport | None = None
    """Transport of the client; None until its protocol is known."""
    slot: LongMessageSlot = msgspec.field(default_factory=LongMessageSlot)
    """Room for an incomplete long message."""

    def may_enter(self) -> bool:
        """Return whether the client is a process of this user, and none that this server has started."""
        if self.door.held is None:
            return True
        try:
            peer = peer_of(self.stream.socket)
        except OSError:
            return False
        self.pid = peer.pid
        if peer.user != os.geteuid():
            log.warning("refused a process of user %d", peer.user)
            return False
        if is_own_work(self.stream.socket, peer.pid):
            log.warning("refused process %d: this server has started it, or it has ended", peer.pid)
            return False
        self.is_known = True
        return True

    async def _is_welcome(self) -> bool:
        """Return whether a client with the token is a process that this server has not started."""
        try:
            is_own = await run_in_thread(is_from_own_work, self.stream.socket)
        except OSError:  # the client has left
            return False
        if is_own:
            log.warning("refused a client with the token: this server has started it, or nobody can tell")
        return not is_own

    def drop(self) -> None:
        """Shut the connection down, so that its task reads the end."""
        with suppress(OSError):
            self.stream.socket.shutdown(socket.SHUT_RDWR)

    async def hear(self, speech: Callable[[bytearray, bool], WireProtocol | None]) -> WireProtocol | None:
        """Read until the protocol is known, and return it; None if it never is. `speech` is called with the bytes so
        far, and whether they contain a complete line: each piece is searched once. Raises UnknownProtocol.
        """
        has_line = b"\n" in self.said
        while (found := speech(self.said, has_line)) is None:
            try:
                piece = await self.stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                return None
            has_line = has_line or b"\n" in piece
            self.said += piece
        return found

    def take_line(self) -> bytes:
        line, _, rest = bytes(self.said).partition(b"\n")
        self.said = bytearray(rest)
        return line

    def take_all(self) -> bytes:
        said, self.said = bytes(self.said), bytearray()
        return said

    async def say(self, data: bytes) -> None:
        with suppress(anyio.BrokenResourceError):  # the next read reports the end
            await self.stream.send(data)

    async def dismiss(self, last_words: bytes = b"") -> None:
        """Tell the client why it is not served, and let it read that before the connection is closed."""
        with anyio.move_on_after(LEAVES_WITHIN):
            await self.say(last_words)
            await StreamTransport(self.stream).close(GOING_AWAY, "")

    async def speaks(self, line_limit: int, speech: WireProtocol | None) -> ClosingTransport | None:
        """Return a transport for the client's protocol, which may still have to be detected; None if the client has
        left, or sent another HTTP request.
        """
        speech = speech or await self.hear(speech_after_preface)
        if speech is None:
            return None
        if speech is WireProtocol.LINES:
            self.transport = StreamTransport(self.stream, line_limit, unread=self.take_all(), slot=self.slot)
            return self.transport
        self.is_guest = False  # until the HTTP request has been checked for capacity
        is_welcome = self._is_welcome if self.door.held is None else None
        self.transport = await self.door.http.get().enter(self.stream, self.take_all(), self.slot, is_welcome)
        self.is_guest = self.is_known = self.transport is not None
        return self.transport

    async def end(self) -> None:
        with anyio.move_on_after(LEAVES_WITHIN, shield=True):
            await (self.transport or StreamTransport(self.stream)).close(*self.farewell)
        self.slot.leave()
