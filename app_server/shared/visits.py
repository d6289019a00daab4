"""The clients of a process, each from its first byte until it leaves.

What a client speaks is told by the first bytes that it says: lines, HTTP, or the preface of a proxy. Whoever says
anything else, too much or nothing for too long is none of ours.
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

from app_server.core.threads import run_in_thread
from app_server.proxy.meeting import BEGINNING_OF_ANY, MOST_BYTES
from app_server.served import Served
from app_server.server import ClientPlace, Server
from app_server.shared.doors import Door
from app_server.shared.peers import is_from_own_work, is_own_work, peer_of
from app_server.transport.framing import Transport
from app_server.transport.sockets import Room, SocketStream, StreamTransport

if TYPE_CHECKING:
    from app_server.transport.websocket import WebSocketTransport

    ClosingTransport = StreamTransport | WebSocketTransport

log = logging.getLogger(__name__)

LEAVES_WITHIN = 2
"""Seconds for a client to take the last words and leave."""

GOING_AWAY = 1001
"""Of a WebSocket whose server ends."""
TRY_AGAIN_LATER = 1013
"""Of one whose client did not read."""

MOST_WAITING = 1 << 16
"""Bytes of a first line that are waited for before it is served: its client does speak."""


class Speech(Enum):
    LINES = "lines"
    HTTP = "HTTP"
    PREFACE = "a preface"


class Nonsense(Exception):
    """The bytes begin nothing that is served here."""


def speech_of(said: bytes | bytearray, has_line: bool) -> Speech | None:
    """Return what a new connection begins with; None while that is still open. `has_line`: a line of it has ended.
    Raises Nonsense.
    """
    if not said:
        return None
    if said.startswith(b"G"):
        return Speech.HTTP
    if not said.startswith(b"{"):
        raise Nonsense
    if said.startswith(BEGINNING_OF_ANY):
        if len(said) > MOST_BYTES and said.find(b"\n", 0, MOST_BYTES) < 0:
            raise Nonsense
        return Speech.PREFACE if has_line else None
    if has_line or len(said) > MOST_WAITING:
        return Speech.LINES
    return None


def speech_after_preface(said: bytes | bytearray, has_line: bool) -> Speech | None:
    """Return what the client behind a proxy begins with; None while that is still open. It may say any line, and has
    not to end it.
    """
    if not said:
        return None
    return Speech.HTTP if said.startswith(b"G") else Speech.LINES


class Visit(Struct, eq=False, kw_only=True):
    """A client; one that has come through no door is the one that has started this process."""

    number: int
    since: float
    """Seconds since 1970."""
    pid: int | None = None
    scope: anyio.CancelScope = msgspec.field(default_factory=anyio.CancelScope)
    is_guest: bool = False
    """Whether it may enter, and counts as a client; else it has yet to say who it is, or only asks something."""
    asks: bool = False
    """Whether it is no client, but `daemon`, which asks something."""
    served: Served | None = None
    """From there on, as long as it is served."""
    farewell: tuple[int, str] = (GOING_AWAY, "server shutting down")
    """Why it is served no longer, for a WebSocket."""

    @property
    def at_rest(self) -> bool:
        """Whether no request of it is in work, and it has been written all that it was told."""
        return self.served is None or self.served.at_rest

    async def serve(self, server: Server, transport: Transport, place: ClientPlace) -> None:
        """Let a server serve it over its transport."""

        def joined(served: Served) -> None:
            self.served = served

        try:
            notice = await server.serve(transport, place, joined=joined)
        finally:
            self.served = None
        if notice is not None:
            self.farewell = TRY_AGAIN_LATER, notice

    async def end(self) -> None:
        """Let it read the last words."""


class Arrival(Visit, kw_only=True, eq=False):
    """A client that has come through a door."""

    door: Door
    stream: SocketStream
    is_known: bool = False
    """Whether it has shown that it may be here: by its user, or by a token."""
    said: bytearray = msgspec.field(default_factory=bytearray)
    """What was heard and is not served yet."""
    transport: ClosingTransport | None = None
    """None until it is known what it speaks."""
    room: Room = msgspec.field(default_factory=Room)
    """For a long message whose end has not come."""

    def may_enter(self) -> bool:
        """Tell whether it comes from this user, and not from what this server has started."""
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
        """Return whether a client that has brought the token is none that this server has started."""
        try:
            is_own = await run_in_thread(is_from_own_work, self.stream.socket)
        except OSError:  # it has left
            return False
        if is_own:
            log.warning("refused a client with the token: this server has started it, or nobody can tell")
        return not is_own

    def drop(self) -> None:
        """Let its task find the end of the connection."""
        with suppress(OSError):
            self.stream.socket.shutdown(socket.SHUT_RDWR)

    async def hear(self, speech: Callable[[bytearray, bool], Speech | None]) -> Speech | None:
        """Read until it is known what is spoken; return None where that never is. `speech` is asked with what was read,
        and with whether a line of it has ended: each piece is searched once. Raises Nonsense.
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
        with suppress(anyio.BrokenResourceError):  # the next read finds the end
            await self.stream.send(data)

    async def dismiss(self, last_words: bytes = b"") -> None:
        """Say why the client is not served, and let it read that before the connection is closed."""
        with anyio.move_on_after(LEAVES_WITHIN):
            await self.say(last_words)
            await StreamTransport(self.stream).close(GOING_AWAY, "")

    async def speaks(self, line_limit: int, speech: Speech | None) -> ClosingTransport | None:
        """Return a transport for what the client speaks, which may still have to be heard; None where it has left, or
        asked over HTTP for something else.
        """
        speech = speech or await self.hear(speech_after_preface)
        if speech is None:
            return None
        if speech is Speech.LINES:
            self.transport = StreamTransport(self.stream, line_limit, unread=self.take_all(), room=self.room)
            return self.transport
        self.is_guest = False  # until the door has judged whether there is room for one more
        is_welcome = self._is_welcome if self.door.held is None else None
        self.transport = await self.door.http.get().enter(self.stream, self.take_all(), self.room, is_welcome)
        self.is_guest = self.is_known = self.transport is not None
        return self.transport

    async def end(self) -> None:
        with anyio.move_on_after(LEAVES_WITHIN, shield=True):
            await (self.transport or StreamTransport(self.stream)).close(*self.farewell)
        self.room.leave()
