"""What a server hands over to the one that goes on in its place, and how that one takes it.

It takes its way over a pair of sockets between the two processes. The sockets of clients go with it, and environments,
which are secrets: they are in no file, argument or log on their way. The new server says when it is ready, and goes on
when the old one has ended.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator, Sequence
from functools import partial

import msgspec
from msgspec import Struct

from app_server.apis.keeping import Together
from app_server.core.launcher.wire import receive_exactly
from app_server.core.threads import run_in_thread
from app_server.server import ClientPlace, Server
from app_server.shared.binding import KeptPlace
from app_server.shared.preface import parse_preface
from app_server.shared.reception import Reception
from app_server.shared.visits import Arrival, KeptVisit
from app_server.transport.sockets import SocketStream

FORMAT = 1
"""Of what is handed over. Another version may have another one; then the old server stays."""

LOADED, TOOK = b"loaded %d\n" % FORMAT, b"took\n"
"""What the new server says: that it is ready for that form, and that it has taken everything over."""

SIZE = struct.Struct("<Q")
AT_ONCE = 200
"""Descriptors in one message; Linux takes 253."""


class HandedOver(Struct, frozen=True, kw_only=True):
    """A server. Of descriptors those of the places come first, a lock and a socket each; then those of the other
    addresses, then those of the connections.
    """

    places: tuple[KeptPlace, ...]
    connections: tuple[KeptVisit, ...]
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


class Predecessor:
    """The server that this process replaces, at the other end of a socket."""

    def __init__(self, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)
        self._channel = socket.socket(fileno=descriptor)

    async def take(self) -> tuple[HandedOver, Iterator[int]] | None:
        """Say that this server is ready, and wait for what it goes on with; None where the other one goes on."""
        self._channel.sendall(LOADED)
        taken = await run_in_thread(receive, self._channel, abandon_on_cancel=True)
        return None if taken is None else (taken[0], iter(taken[1]))

    async def go_on(
        self, server: Server, reception: Reception, state: HandedOver, descriptors: Iterator[int]
    ) -> None:
        """Make every connection what it was, let the other server end, and serve."""
        reception.last_number = state.last_number
        server.conversations.restoring = True
        together = Together(len(state.connections))
        for kept, descriptor in zip(state.connections, descriptors, strict=True):
            door = next((each for each in reception.doors if each.address == kept.door), reception.doors[0])
            arrival = Arrival(
                number=kept.number,
                since=kept.since,
                pid=kept.pid,
                door=door,
                stream=SocketStream(socket.socket(fileno=descriptor)),
                said=bytearray(kept.unread),
                preface=kept.preface,
            )
            reception.receive(arrival, partial(_go_on, server, reception, arrival, kept, together))
        await together.all_joined()
        self._channel.sendall(TOOK)
        await run_in_thread(self._channel.recv, 1)  # the end of that process
        self._channel.close()
        together.goes_on.set()
        server.conversations.restored()


async def _go_on(
    server: Server, reception: Reception, arrival: Arrival, kept: KeptVisit, together: Together
) -> None:
    place = reception.place
    if kept.preface is not None:
        said = parse_preface(kept.preface, place.home, place.cli)
        assert isinstance(said, ClientPlace)
        place = said
    client = kept.client
    if client is None:
        await together.skip()
        await reception.attend(arrival, place, None)
        return
    async with reception.counted(arrival):
        transport = arrival.goes_on(reception.line_limit, websocket=kept.websocket)
        await arrival.serve(server, transport, place, lambda it: together.restore(it, client))
