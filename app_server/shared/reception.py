"""Receives connections: who it is, what it speaks, whether there is room; then the server serves it until it leaves.

This is the one place that knows every socket of the process: those that listen, and those of clients.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Iterator
from functools import partial

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup, TaskStatus

from app_server.logs import CONNECTION
from app_server.server import ClientPlace
from app_server.shared.arrivals import (
    Arrival,
    Doorway,
)
from app_server.shared.first_bytes import (
    FIRST_MESSAGE_SECONDS,
    Nonsense,
    Speech,
    speech_of,
)
from app_server.shared.preface import BadPreface, Question, no, parse_preface, yes
from app_server.shared.visits import ServesClients, Visit, Visits
from app_server.transport.framing import Transport
from app_server.transport.sockets import SocketStream

log = logging.getLogger(__name__)

SHORTAGES = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))
SHORTAGE_SECONDS = 1
"""Until a connection is accepted again, where the system had nothing left for one."""


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
        self.place, self._most = place, most
        self._wall_clock, self._answer = wall_clock, answer
        self.clients = Visits(served, line_limit)
        self.visits = self.clients.present
        self._tasks: TaskGroup | None = None
        self.last_number = 0
        self._arriving = self._asking = 0
        self.doors: list[Doorway] = []
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

    def going_on(self) -> Iterator[str]:
        """Yield what could not go on in another process."""
        served = sum(each.arrival is not None for each in self.visits.values())
        if beginning := self._arriving - self._asking - served:
            yield f"connections that begin: {beginning}"
        yield from self.clients.going_on()

    # --- listening
    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Receive until cancelled."""
        async with anyio.create_task_group() as self._tasks:
            for door in self.doors:
                self._tasks.start_soon(self._accept, door, name=f"accept {door.address}")
            task_status.started()
            await anyio.sleep_forever()

    def replace(self, door: Doorway, listening: socket.socket) -> None:
        """Go on with another socket under the same address."""
        door.scope.cancel()
        door.socket.close()
        door.socket, door.scope = listening, anyio.CancelScope()
        assert self._tasks is not None
        self._tasks.start_soon(self._accept, door, name=f"accept {door.address}")

    def pause(self) -> None:
        """Accept nobody and read nothing; both wait in the system."""
        for door in self.doors:
            door.scope.cancel()
        self.clients.pause()

    def resume(self) -> None:
        assert self._tasks is not None
        self.clients.resume()
        for door in self.doors:
            door.scope = anyio.CancelScope()
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
        self.last_number += 1
        arrival = Arrival(self.last_number, SocketStream(connection), door)
        self.receive(arrival, partial(self._receive, arrival))
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
        if arrival.may_enter():
            await self._greet(arrival)

    def receive(self, arrival: Arrival, serve: Callable[[], Awaitable[None]]) -> None:
        """Begin to serve a connection, whatever it is."""
        assert self._tasks is not None
        self._arriving += 1
        self._tasks.start_soon(self._received, arrival, serve, name=f"connection {arrival.number}")

    async def _received(self, arrival: Arrival, serve: Callable[[], Awaitable[None]]) -> None:
        CONNECTION.set(arrival.number)
        self.quiet_since = anyio.current_time()
        try:
            await serve()
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
            await self._serve(arrival, self.place, speech)

    async def _read_preface(self, arrival: Arrival) -> None:
        line = arrival.take_line()
        try:
            said = parse_preface(line, self.place.home, self.place.cli)
        except BadPreface as error:
            await arrival.dismiss(no(str(error)))
            return
        if isinstance(said, Question):
            self._asking += 1
            try:
                await self._answer(said, arrival)
            finally:
                self._asking -= 1
        elif why := self.why_full():
            await arrival.dismiss(no(why))
        else:
            await arrival.say(yes())
            await self._serve(arrival, said, None, line)

    async def _serve(
        self, arrival: Arrival, place: ClientPlace, speech: Speech | None, preface: bytes | None = None
    ) -> None:
        """Serve a client over what it speaks, which may still have to be heard."""
        visit = Visit(arrival.number, arrival.pid, self._wall_clock(), arrival, preface)
        async with self.clients.counted(visit):
            await self.clients.serve_what_it_speaks(visit, place, speech)

    async def host(self, transport: Transport, place: ClientPlace) -> None:
        """Serve a client that came through no door: the one that has started this process."""
        self.last_number += 1
        CONNECTION.set(self.last_number)
        visit = Visit(self.last_number, os.getppid(), self._wall_clock())
        async with self.clients.counted(visit):
            await self.clients.serve(visit, transport, place)
