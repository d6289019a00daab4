"""A connection from its first byte to the point where it is known who is to be served over what."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

import anyio
import msgspec
from anyio.abc import ByteStream
from msgspec import Struct

from app_server.core.lazy import Lazy
from app_server.shared.first_bytes import Speech
from app_server.shared.peers import is_own_work, peer_of
from app_server.transport.framing import Transport
from app_server.transport.long_messages import Room
from app_server.transport.sockets import SocketStream, StreamTransport

log = logging.getLogger(__name__)

LEAVES_WITHIN = 2
"""Seconds for a client to take the last words and leave."""

GOING_AWAY = 1001
"""Of a WebSocket whose server ends."""
TRY_AGAIN_LATER = 1013
"""Of one whose client did not read."""


class ClosingTransport(Transport, Protocol):
    @property
    def begun(self) -> bytes | None:
        """Return the beginning of a message, of which the rest has not come; None while it cannot be had."""
        ...

    async def close(self, code: int, reason: str) -> None:
        """Say that the connection ends, and wait until the client has left."""
        ...


class OpensWebSockets(Protocol):
    async def enter(self, stream: ByteStream, received: bytes, room: Room) -> ClosingTransport | None:
        """Return the WebSocket of a client that speaks HTTP; None: it was answered and is to be closed."""
        ...


class Doorway(Struct, eq=False):
    """A socket that listens."""

    socket: socket.socket
    address: str
    """As users write it."""
    http: Lazy[OpensWebSockets]
    """Loaded with the first client that speaks it."""
    of_this_user: bool = True
    """Whether the system says who connects; else clients bring a token."""
    scope: anyio.CancelScope = msgspec.field(default_factory=anyio.CancelScope)
    """Of the task that accepts."""


class Arrival(Struct, eq=False):
    """A connection of which little was heard."""

    number: int
    stream: SocketStream
    door: Doorway
    pid: int | None = None
    said: bytearray = msgspec.field(default_factory=bytearray)

    def may_enter(self) -> bool:
        """Tell whether it comes from this user, and not from what this server has started."""
        if not self.door.of_this_user:
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
