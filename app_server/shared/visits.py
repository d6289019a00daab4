"""The clients of a process, each from its first byte until it leaves; and what survives of one where another process
goes on with it.

What a client speaks is told by the first bytes that it says: lines, HTTP, or the preface of a proxy. Whoever says
anything else, too much or nothing for too long is none of ours.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from enum import Enum
from typing import TYPE_CHECKING

import anyio
import msgspec
from msgspec import Struct

from app_server.apis.keeping import KeptClient, keep
from app_server.apis.services import Served
from app_server.conversations.subscriptions import Client
from app_server.proxy.meeting import BEGINNING_OF_ANY, MOST_BYTES
from app_server.server import ClientPlace, Server
from app_server.shared.doors import Door
from app_server.shared.peers import is_own_work, peer_of
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


def speech_of(said: bytes) -> Speech | None:
    """Return what a new connection begins with; None while that is still open. Raises Nonsense."""
    if not said:
        return None
    if said.startswith(b"G"):
        return Speech.HTTP
    if not said.startswith(b"{"):
        raise Nonsense
    whole = b"\n" in said
    if said.startswith(BEGINNING_OF_ANY):
        if len(said) > MOST_BYTES and b"\n" not in said[:MOST_BYTES]:
            raise Nonsense
        return Speech.PREFACE if whole else None
    if whole or len(said) > MOST_WAITING:
        return Speech.LINES
    return None


def speech_after_preface(said: bytes) -> Speech | None:
    """Return what the client behind a proxy begins with; None while that is still open. It may say any line."""
    if not said:
        return None
    return Speech.HTTP if said.startswith(b"G") else Speech.LINES


class KeptVisit(Struct, frozen=True, kw_only=True):
    """A client that is handed over. What survives of it is here, in its socket, and in the files of its
    conversations.
    """

    number: int
    pid: int | None
    since: float
    door: str
    """The address at which it came in."""
    preface: bytes | None
    """The line with the environment and options of its client, where that came with a proxy."""
    websocket: bool
    unread: bytes
    """The beginning of a message, of which the rest has not come."""
    client: KeptClient | None
    """None: it has not said anything behind its preface."""


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
    def client(self) -> Client | None:
        return None if self.served is None else self.served.client

    @property
    def at_rest(self) -> bool:
        """Whether another process could go on with it: nothing of it is in work."""
        return False

    async def serve(
        self,
        server: Server,
        transport: Transport,
        place: ClientPlace,
        prepare: Callable[[Served], Awaitable[None]] | None = None,
    ) -> None:
        """Let a server serve it over its transport. `prepare` is awaited before its first request."""

        async def joined(served: Served) -> None:
            if prepare is not None:
                await prepare(served)
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
    said: bytearray = msgspec.field(default_factory=bytearray)
    """What was heard and is not served yet."""
    preface: bytes | None = None
    transport: ClosingTransport | None = None
    """None until it is known what it speaks."""
    websocket: bool = False
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
        return True

    async def hear(self, speech: Callable[[bytes], Speech | None]) -> Speech | None:
        """Read until it is known what is spoken; return None where that never is. Raises Nonsense."""
        while (found := speech(bytes(self.said))) is None:
            try:
                self.said += await self.stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                return None
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
            return self.goes_on(line_limit, websocket=False)
        self.websocket = True
        self.is_guest = False  # until the door has judged whether there is room for one more
        self.transport = await self.door.http.get().enter(self.stream, self.take_all(), self.room)
        self.is_guest = self.transport is not None
        return self.transport

    def goes_on(self, line_limit: int, *, websocket: bool) -> ClosingTransport:
        """Return a transport for a client that speaks lines, or whose WebSocket is open."""
        self.websocket, said = websocket, self.take_all()
        if websocket:
            self.transport = self.door.http.get().go_on(self.stream, said, self.room)
        else:
            self.transport = StreamTransport(self.stream, line_limit, unread=said, room=self.room)
        return self.transport

    async def end(self) -> None:
        with anyio.move_on_after(LEAVES_WITHIN, shield=True):
            await (self.transport or StreamTransport(self.stream)).close(*self.farewell)
        self.room.leave()

    @property
    def at_rest(self) -> bool:
        if not self.is_guest or not self.stream.awaits:
            return False
        if self.served is None:  # it may be heard, but not be in work
            return self.transport is None and not self.websocket
        return self.served.at_rest and self.transport is not None and self.transport.begun is not None

    def keep(self) -> KeptVisit:
        """Return what survives of it. It is at rest."""
        begun, client = bytes(self.said), None
        if self.served is not None and self.transport is not None:
            begun, client = self.transport.begun or b"", keep(self.served)
        return KeptVisit(
            number=self.number,
            pid=self.pid,
            since=self.since,
            door=self.door.address,
            preface=self.preface,
            websocket=self.websocket,
            unread=begun,
            client=client,
        )
