"""Receives connections: who it is, what it speaks, whether there is room; then the server serves it until it leaves.

This is the one place that knows every socket of the process: those that listen, and those of clients.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Protocol

import anyio
import anyio.lowlevel
import msgspec
from anyio.abc import TaskGroup
from msgspec import Struct

from app_server.conversations.subscriptions import Client
from app_server.logs import CONNECTION
from app_server.server import ClientPlace
from app_server.shared.arrivals import (
    GOING_AWAY,
    LEAVES_WITHIN,
    TRY_AGAIN_LATER,
    Arrival,
    ClosingTransport,
    Doorway,
)
from app_server.shared.first_bytes import (
    FIRST_MESSAGE_SECONDS,
    Nonsense,
    Speech,
    speech_after_preface,
    speech_of,
)
from app_server.shared.preface import BadPreface, Question, no, parse_preface, yes
from app_server.transport.framing import Transport
from app_server.transport.sockets import SocketStream, StreamTransport

log = logging.getLogger(__name__)

SHORTAGES = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))
SHORTAGE_SECONDS = 1
"""Until a connection is accepted again, where the system had nothing left for one."""


class ServesClients(Protocol):
    """A server, as `app_server.server.Server`."""

    async def serve(
        self, transport: Transport, place: ClientPlace, *, joined: Callable[[Client], None]
    ) -> str | None: ...


class Visit(Struct, eq=False):
    """A client that is served."""

    number: int
    pid: int | None
    since: float
    """Seconds since 1970."""
    transport: ClosingTransport | None = None
    scope: anyio.CancelScope = msgspec.field(default_factory=anyio.CancelScope)
    client: Client | None = None
    """None until it has said something behind its preface."""

    def joined(self, client: Client) -> None:
        self.client = client


class Reception:
    """The clients of one process."""

    def __init__(
        self,
        served: ServesClients,
        place: ClientPlace,
        *,
        most: int,
        line_limit: int,
        wall_clock: Callable[[], float],
        answer: Callable[[Question, Arrival], Awaitable[None]],
    ) -> None:
        """`place` is that of clients without a preface; its overrides count more than those of others. At most `most`
        are served at once. `answer` answers what `daemon` asks.
        """
        self._served, self._place, self._most = served, place, most
        self._line_limit, self._wall_clock, self._answer = line_limit, wall_clock, answer
        self._tasks: TaskGroup | None = None
        self._last_number = 0
        self._arriving = 0
        self.doors: list[Doorway] = []
        self.visits: dict[int, Visit] = {}
        self.closed = False
        """Nobody is received any more."""
        self.quiet_since = anyio.current_time()
        """When somebody came or left last."""
        self.left = anyio.Event()
        """Set, and made anew, when somebody has left."""

    @property
    def is_empty(self) -> bool:
        return not self.visits and not self._arriving

    def why_full(self) -> str | None:
        """Return why nobody can be served more; None where somebody can."""
        if len(self.visits) >= self._most:
            return f"Server overloaded: {len(self.visits)} clients are connected; try again"
        return None

    # --- listening
    async def run(self) -> None:
        """Receive until cancelled."""
        async with anyio.create_task_group() as self._tasks:
            for door in self.doors:
                self._tasks.start_soon(self._accept, door, name=f"accept {door.address}")
            await anyio.sleep_forever()

    def replace(self, door: Doorway, listening: socket.socket) -> None:
        """Go on with another socket under the same address."""
        door.scope.cancel()
        door.socket.close()
        door.socket, door.scope = listening, anyio.CancelScope()
        assert self._tasks is not None
        self._tasks.start_soon(self._accept, door, name=f"accept {door.address}")

    def stop_listening(self) -> None:
        """Receive nobody any more. Who was not served yet is closed, and so finds the next server."""
        self.closed = True
        for door in self.doors:
            door.scope.cancel()
            door.socket.close()

    def accept_waiting(self) -> bool:
        """Receive who waits to be accepted; return whether there was anybody."""
        found = False
        for door in self.doors:
            while self._accept_one(door.socket, door):
                found = True
        return found

    def _accept_one(self, listening: socket.socket, door: Doorway) -> bool:
        """Raise OSError where the system has nothing left for a connection."""
        try:
            connection, _ = listening.accept()
        except OSError as error:
            if error.errno in SHORTAGES:
                raise
            return False
        assert self._tasks is not None
        self._last_number += 1
        self._arriving += 1
        arrival = Arrival(self._last_number, SocketStream(connection), door)
        self._tasks.start_soon(self._receive, arrival, name=f"connection {arrival.number}")
        return True

    async def _accept(self, door: Doorway) -> None:
        listening, is_short = door.socket, False
        with door.scope:
            while True:
                try:
                    accepted = self._accept_one(listening, door)
                except OSError as error:
                    if not is_short:
                        log.warning("no connection can be accepted on %s: %s", door.address, error.strerror)
                    is_short = True
                    await anyio.sleep(SHORTAGE_SECONDS)
                    continue
                is_short = False
                if accepted:
                    await anyio.lowlevel.checkpoint()
                else:
                    await anyio.wait_readable(listening)

    # --- receiving
    async def _receive(self, arrival: Arrival) -> None:
        CONNECTION.set(arrival.number)
        self.quiet_since = anyio.current_time()
        try:
            if arrival.may_enter():
                await self._greet(arrival)
        except Nonsense:
            log.info("closed: its first bytes begin nothing that is served here")
        except Exception:
            log.exception("a connection failed")  # and takes no other along
        finally:
            self._arriving -= 1
            self.quiet_since = anyio.current_time()
            await arrival.stream.aclose()
            self.left.set()
            self.left = anyio.Event()

    async def _greet(self, arrival: Arrival) -> None:
        speech: Speech | None = None
        with anyio.move_on_after(FIRST_MESSAGE_SECONDS):
            speech = await arrival.hear(speech_of)
        if speech is None or self.closed:
            return
        if speech is not Speech.HTTP and not arrival.door.of_this_user:
            raise Nonsense  # there is no token in it
        if speech is Speech.PREFACE:
            await self._read_preface(arrival)
        else:
            await self._serve(arrival, self._place, speech)

    async def _read_preface(self, arrival: Arrival) -> None:
        try:
            said = parse_preface(arrival.take_line(), self._place.home, self._place.cli)
        except BadPreface as error:
            await arrival.dismiss(no(str(error)))
            return
        if isinstance(said, Question):
            await self._answer(said, arrival)
        elif why := self.why_full():
            await arrival.dismiss(no(why))
        else:
            await arrival.say(yes())
            await self._serve(arrival, said, None)

    async def _serve(self, arrival: Arrival, place: ClientPlace, speech: Speech | None) -> None:
        """Serve a client over what it speaks, which may still have to be heard."""
        visit = Visit(arrival.number, arrival.pid, self._wall_clock(), StreamTransport(arrival.stream))
        async with self._counted(visit):
            speech = speech or await arrival.hear(speech_after_preface)
            said = arrival.take_all()
            transport: ClosingTransport | None = None
            if speech is Speech.HTTP:
                transport = await arrival.door.http.enter(arrival.stream, said)
            elif speech is not None:
                transport = StreamTransport(arrival.stream, self._line_limit, unread=said)
            if transport is not None:
                visit.transport = transport
                notice = await self._served.serve(transport, place, joined=visit.joined)
                if notice is not None:
                    with anyio.move_on_after(LEAVES_WITHIN):
                        await transport.close(TRY_AGAIN_LATER, notice)

    async def host(self, transport: Transport, place: ClientPlace) -> None:
        """Serve a client that came through no door: the one that has started this process."""
        self._last_number += 1
        CONNECTION.set(self._last_number)
        visit = Visit(self._last_number, os.getppid(), self._wall_clock())
        async with self._counted(visit):
            await self._served.serve(transport, place, joined=visit.joined)

    @asynccontextmanager
    async def _counted(self, visit: Visit) -> AsyncIterator[None]:
        """Count a client until it leaves or its scope is cancelled; let it read the last words."""
        self.visits[visit.number] = visit
        log.info("connected: process %s", visit.pid)
        try:
            with visit.scope:
                yield
        finally:
            if visit.transport is not None:
                with anyio.move_on_after(LEAVES_WITHIN, shield=True):
                    await visit.transport.close(GOING_AWAY, "server shutting down")
            del self.visits[visit.number]
            log.info("left")
