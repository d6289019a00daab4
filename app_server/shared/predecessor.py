"""The server that this process replaces, as it is seen from here: it waits until this one is ready, hands over, and
ends when everything has been taken.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from functools import partial

from websockets.protocol import State

from app_server.apis.keeping import Together
from app_server.core.threads import run_in_thread
from app_server.server import ClientPlace, Server
from app_server.shared.arrivals import Arrival, ClosingTransport
from app_server.shared.handover import LOADED, TOOK, HandedOver, KeptConnection, receive
from app_server.shared.preface import parse_preface
from app_server.shared.reception import Reception
from app_server.shared.visits import Visit
from app_server.transport.sockets import SocketStream, StreamTransport
from app_server.transport.websocket import WebSocketTransport, server_protocol


class Predecessor:
    """The other end of its socket."""

    def __init__(self, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)
        self._channel = socket.socket(fileno=descriptor)

    async def take(self) -> tuple[HandedOver, list[int]] | None:
        """Say that this server is ready, and wait for what it goes on with; None where the other one goes on."""
        self._channel.sendall(LOADED)
        return await run_in_thread(receive, self._channel, abandon_on_cancel=True)

    async def go_on(
        self, server: Server, reception: Reception, state: HandedOver, descriptors: Iterator[int]
    ) -> None:
        """Make every connection what it was, let the other server end, and serve."""
        reception.last_number = state.last_number
        server.conversations.restoring = True
        together = Together(len(state.connections))
        for kept, descriptor in zip(state.connections, descriptors, strict=True):
            _restore(reception, kept, descriptor, together)
        await together.all_joined()
        self._channel.sendall(TOOK)
        await run_in_thread(self._channel.recv, 1)  # the end of that process
        self._channel.close()
        together.goes_on.set()
        server.conversations.restored()


def _restore(reception: Reception, kept: KeptConnection, descriptor: int, together: Together) -> None:
    """Go on with a connection of the server before this one."""
    door = next((each for each in reception.doors if each.address == kept.door), reception.doors[0])
    stream = SocketStream(socket.socket(fileno=descriptor))
    arrival = Arrival(kept.number, stream, door, kept.pid, bytearray(kept.unread))
    reception.receive(arrival, partial(_go_on, reception, arrival, kept, together))


async def _go_on(reception: Reception, arrival: Arrival, kept: KeptConnection, together: Together) -> None:
    place, visits = reception.place, reception.clients
    if kept.preface is not None:
        said = parse_preface(kept.preface, place.home, place.cli)
        assert isinstance(said, ClientPlace)
        place = said
    visit = Visit(kept.number, kept.pid, kept.since, arrival, kept.preface, websocket=kept.websocket)
    async with visits.counted(visit):
        client = kept.client
        if client is None:
            await together.skip()
            await visits.serve_what_it_speaks(visit, place, None)
        else:
            visit.transport = _transport(visit, arrival, visits.line_limit, websocket=kept.websocket)
            await visits.serve(visit, visit.transport, place, lambda it: together.restore(it, client))


def _transport(visit: Visit, arrival: Arrival, line_limit: int, *, websocket: bool) -> ClosingTransport:
    unread = arrival.take_all()
    if websocket:
        protocol = server_protocol(line_limit, State.OPEN)
        return WebSocketTransport(arrival.stream, protocol, unread=unread, room=visit.room)
    return StreamTransport(arrival.stream, line_limit, unread=unread, room=visit.room)
