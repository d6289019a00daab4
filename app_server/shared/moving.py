"""Connections on their way from one process to another: nothing of them is read while they are between both, and each
is served on from where it was.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from functools import partial

from websockets.protocol import State

from app_server.apis.keeping import Together
from app_server.server import ClientPlace
from app_server.shared.arrivals import Arrival, ClosingTransport
from app_server.shared.handover import KeptConnection
from app_server.shared.preface import parse_preface
from app_server.shared.reception import Reception
from app_server.shared.visits import Visit
from app_server.transport.sockets import SocketStream, StreamTransport
from app_server.transport.websocket import WebSocketTransport, server_protocol


def going_on(reception: Reception) -> Iterator[str]:
    """Yield what could not go on in another process."""
    if reception.beginning:
        yield f"connections that begin: {reception.beginning}"
    for visit in reception.visits.values():
        if not visit.at_rest:
            yield f"client {visit.number}: a request, a login, or what it has not read"


def all_written(reception: Reception) -> bool:
    clients = (visit.client for visit in reception.visits.values())
    return all(client is None or client.outgoing.unread == 0 for client in clients)


def pause(reception: Reception) -> None:
    """Accept nobody and read nothing; both wait in the system."""
    reception.pause()
    for visit in reception.visits.values():
        if visit.arrival is not None:
            visit.arrival.stream.pause()


def resume(reception: Reception) -> None:
    reception.resume()
    for visit in reception.visits.values():
        if visit.arrival is not None:
            visit.arrival.stream.resume()


def restore(reception: Reception, kept: KeptConnection, descriptor: int, together: Together) -> None:
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
    visit = Visit(kept.number, kept.pid, kept.since, arrival, kept.preface)
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
