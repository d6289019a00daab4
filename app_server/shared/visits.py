"""The clients that a process serves, from the first byte behind a preface until they leave; and what survives of each
where another process goes on with it.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Protocol

import anyio
import msgspec
from msgspec import Struct

from app_server.apis.keeping import keep
from app_server.apis.services import Served
from app_server.conversations.subscriptions import Client
from app_server.server import ClientPlace
from app_server.shared.arrivals import GOING_AWAY, LEAVES_WITHIN, TRY_AGAIN_LATER, Arrival, ClosingTransport
from app_server.shared.first_bytes import Speech, speech_after_preface
from app_server.shared.handover import KeptConnection
from app_server.transport.framing import Transport
from app_server.transport.long_messages import LongMessages, Room
from app_server.transport.sockets import StreamTransport

log = logging.getLogger(__name__)


class ServesClients(Protocol):
    """A server, as `app_server.server.Server`."""

    async def serve(
        self, transport: Transport, place: ClientPlace, *, joined: Callable[[Served], Awaitable[None]]
    ) -> str | None: ...


class Visit(Struct, eq=False):
    """A client that is served."""

    number: int
    pid: int | None
    since: float
    """Seconds since 1970."""
    arrival: Arrival | None = None
    """None: it came through no door."""
    preface: bytes | None = None
    transport: ClosingTransport | None = None
    scope: anyio.CancelScope = msgspec.field(default_factory=anyio.CancelScope)
    room: Room = msgspec.field(default_factory=Room)
    """For a long message whose end has not come."""
    websocket: bool = False
    """Whether it speaks that; else lines."""
    heard: bool = False
    """Whether it has said anything behind its preface."""
    served: Served | None = None
    """From there on, as long as it is served."""

    @property
    def client(self) -> Client | None:
        return None if self.served is None else self.served.client

    @property
    def at_rest(self) -> bool:
        """Whether another process could go on with it: nothing of it is in work."""
        if self.arrival is None or not self.arrival.stream.awaits:
            return False
        if self.served is None:
            return not self.heard
        return self.served.at_rest and self.transport is not None and self.transport.begun is not None

    def keep(self) -> tuple[KeptConnection, int]:
        """Return what survives of it, with its descriptor. It is at rest."""
        arrival, transport, client = self.arrival, self.transport, None
        assert arrival is not None
        begun: bytes | None = bytes(arrival.said)
        if self.served is not None and transport is not None:
            begun, client = transport.begun, keep(self.served)
        assert begun is not None
        kept = KeptConnection(
            number=self.number,
            pid=self.pid,
            since=self.since,
            door=arrival.door.address,
            preface=self.preface,
            websocket=self.websocket,
            unread=begun,
            client=client,
        )
        return kept, arrival.stream.socket.fileno()


class Visits:
    """All of them, by number."""

    def __init__(self, served: ServesClients, line_limit: int) -> None:
        self._served, self.line_limit = served, line_limit
        self._long_messages = LongMessages(line_limit)
        self.present: dict[int, Visit] = {}

    def going_on(self) -> Iterator[str]:
        """Yield what could not go on in another process."""
        for visit in self.present.values():
            if not visit.at_rest:
                yield f"client {visit.number}: a request, a login, or what it has not read"

    @property
    def all_written(self) -> bool:
        """Whether every client has been written all that it was told."""
        clients = (visit.client for visit in self.present.values())
        return all(client is None or client.outgoing.unread == 0 for client in clients)

    def pause(self) -> None:
        """Read nothing; it waits in the system."""
        for arrival in self._arrivals():
            arrival.stream.pause()

    def resume(self) -> None:
        for arrival in self._arrivals():
            arrival.stream.resume()

    def _arrivals(self) -> Iterator[Arrival]:
        return (visit.arrival for visit in self.present.values() if visit.arrival is not None)

    @asynccontextmanager
    async def counted(self, visit: Visit) -> AsyncIterator[None]:
        """Count a client until it leaves or its scope is cancelled; let it read the last words."""
        if visit.arrival is not None:
            visit.transport = StreamTransport(visit.arrival.stream)
            visit.room = self._long_messages.connection()
        self.present[visit.number] = visit
        log.info("connected: process %s", visit.pid)
        try:
            with visit.scope:
                yield
        finally:
            if visit.transport is not None:
                with anyio.move_on_after(LEAVES_WITHIN, shield=True):
                    await visit.transport.close(GOING_AWAY, "server shutting down")
            visit.room.leave()
            del self.present[visit.number]
            log.info("left")

    async def serve_what_it_speaks(self, visit: Visit, place: ClientPlace, speech: Speech | None) -> None:
        """Serve a client over what it speaks, which may still have to be heard."""
        arrival = visit.arrival
        assert arrival is not None
        speech = speech or await arrival.hear(speech_after_preface)
        visit.heard, visit.websocket, said = True, speech is Speech.HTTP, arrival.take_all()
        transport: ClosingTransport | None = None
        if visit.websocket:
            transport = await arrival.door.http.get().enter(arrival.stream, said, visit.room)
        elif speech is not None:
            transport = StreamTransport(arrival.stream, self.line_limit, unread=said, room=visit.room)
        if transport is not None:
            visit.transport = transport
            await self.serve(visit, transport, place)

    async def serve(
        self,
        visit: Visit,
        transport: Transport,
        place: ClientPlace,
        prepare: Callable[[Served], Awaitable[None]] | None = None,
    ) -> None:
        """Serve a client over its transport. `prepare` is awaited before its first request."""
        visit.heard = True

        async def joined(served: Served) -> None:
            if prepare is not None:
                await prepare(served)
            visit.served = served

        try:
            notice = await self._served.serve(transport, place, joined=joined)
        finally:
            visit.served = None
        if notice is not None and visit.transport is not None:
            with anyio.move_on_after(LEAVES_WITHIN):
                await visit.transport.close(TRY_AGAIN_LATER, notice)
