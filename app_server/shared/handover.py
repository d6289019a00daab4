"""What a server hands over to the one that goes on in its place, and the way that it takes: a pair of sockets between
the two processes. The sockets of clients go with it, and environments, which are secrets: they are in no file, argument
or log on their way.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from app_server.apis.keeping import KeptClient
from app_server.core.launcher.wire import receive_exactly
from app_server.shared.binding import KeptPlace

FORMAT = 1
"""Of what is handed over. Another version may have another one; then the old server stays."""

LOADED, TOOK = b"loaded %d\n" % FORMAT, b"took\n"
"""What the new server says: that it is ready for that form, and that it has taken everything over."""

SIZE = struct.Struct("<Q")
AT_ONCE = 200
"""Descriptors in one message; Linux takes 253."""


class KeptConnection(Struct, frozen=True, kw_only=True):
    """A connection. What survives of it is here, in its socket, and in the files of its conversations."""

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


class HandedOver(Struct, frozen=True, kw_only=True):
    """A server. Of descriptors those of the places come first, a lock and a socket each; then those of the other
    addresses, then those of the connections.
    """

    places: tuple[KeptPlace, ...]
    connections: tuple[KeptConnection, ...]
    started: float
    """Seconds since 1970."""
    last_number: int


def send(channel: socket.socket, state: HandedOver, descriptors: Sequence[int]) -> None:
    """Raises OSError."""
    data = msgspec.msgpack.encode(state)
    channel.sendall(SIZE.pack(len(data)) + data + SIZE.pack(len(descriptors)))
    for start in range(0, len(descriptors), AT_ONCE):
        socket.send_fds(channel, [b"."], descriptors[start : start + AT_ONCE])


def receive(channel: socket.socket) -> tuple[HandedOver, list[int]] | None:
    """Wait for it; return None where nothing is handed over, because the old server has ended or goes on. Raises
    OSError and msgspec.DecodeError.
    """
    size = _number(channel)
    if size is None:
        return None
    data, count = receive_exactly(channel, size), _number(channel)
    if count is None:
        return None
    descriptors: list[int] = []
    while len(descriptors) < count:
        some, received, _, _ = socket.recv_fds(channel, 1, AT_ONCE)
        if not some:
            return None
        descriptors += received
    return msgspec.msgpack.decode(data, type=HandedOver), descriptors


def _number(channel: socket.socket) -> int | None:
    data = receive_exactly(channel, SIZE.size)
    return int(SIZE.unpack(data)[0]) if len(data) == SIZE.size else None
