"""Receives clients: identifies them, detects their protocol, and checks for capacity; then the server serves each
client until it leaves.

This is the one module that knows every socket of the process: the listening ones, and those of clients.
"""

from __future__ import annotations

import logging
import os
import resource
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial

import anyio
from anyio.abc import TaskGroup, TaskStatus

from app_server.server.composition import Server
from app_server.server.daemon.client_connections import (
    ClientConnection,
    SocketConnection,
    UnknownProtocol,
    WireProtocol,
    speech_of,
)
from app_server.server.daemon.listeners import Listener
from app_server.server.daemon.preface import BadPreface, Question, no, parse_preface, yes
from app_server.server.logs import CONNECTION
from app_server.server.server_settings import ClientSettings
from app_server.server.transport.socket_streams import LongMessageLimiter, SocketStream
from app_server_protocol.framing import Transport
from app_server_protocol.jsonrpc import dump_error
from app_server_protocol.rpc_errors import overloaded

log = logging.getLogger(__name__)

FIRST_MESSAGE_SECONDS = 10
"""Time in which a client has to send its first message, in seconds. After a preface there is no such limit: an editor
may be slow to begin.
"""


MOST_STRANGERS = 64
"""Maximum number of connections to a TCP port that have not shown a token."""

RESERVE = 64
"""Number of file descriptors that are reserved for the served clients: for commands, files, and
connections to models.
"""
SHARE_OF_RESERVE = 8
"""Divisor of the number of all descriptors: the reserve is at most this part of them, if there are few."""


def has_descriptors_left(count: int) -> bool:
    """Return whether a process has so many descriptors left, or a fixed part of all if it has few."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    try:
        lowest = os.dup(2)
    except OSError:
        return False
    os.close(lowest)
    return lowest < most - min(count, most // SHARE_OF_RESERVE)


class Acceptor:
    """The clients of one process."""

    def __init__(
        self,
        server: Server,
        place: ClientSettings,
        *,
        most: int,
        line_limit: int,
        wall_clock: Callable[[], float],
        answer: Callable[[Question, SocketConnection], Awaitable[None]],
    ) -> None:
        """Begin without clients. `place` has the surroundings of clients without a preface; its overrides take
        precedence over those of others. At most `most` clients are served at once. `answer` answers requests of
        `daemon`.
        """
        self._server, self.place, self._most, self.line_limit = server, place, most, line_limit
        self._wall_clock, self._answer = wall_clock, answer
        self._long_messages = LongMessageLimiter(line_limit)
        self._tasks: TaskGroup | None = None
        self.doors: list[Listener] = []
        self.present: dict[int, ClientConnection] = {}
        """All connections that have come and not ended, by number."""
        self.last_number = 0
        self.closed = False
        """Whether no further connections are accepted."""
        self.quiet_since = anyio.current_time()
        """Time at which a connection last began or ended."""
        self.left = anyio.Event()
        """Set when a connection has ended, and then replaced."""

    @property
    def clients(self) -> list[ClientConnection]:
        return [each for each in self.present.values() if each.is_guest]

    def why_full(self) -> str | None:
        """Return the reason why no further client can be served; None if one can."""
        if (count := len(self.clients)) >= self._most:
            return f"Server overloaded: {count} clients are connected; try again"
        if not has_descriptors_left(RESERVE):
            return "Server overloaded: it has too few file descriptors left for another client; try again"
        return None

    @property
    def is_quiet(self) -> bool:
        """Whether no connection has just begun, and no client waits for an answer."""
        return all(each.asks or (each.is_guest and each.at_rest) for each in self.present.values())

    def _arrivals(self) -> Iterator[SocketConnection]:
        return (each for each in self.present.values() if isinstance(each, SocketConnection))

    # --- listening
    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Accept connections until cancelled."""
        async with anyio.create_task_group() as self._tasks:
            self._open_doors(self.doors)
            task_status.started()
            await anyio.sleep_forever()

    def _open_doors(self, doors: list[Listener]) -> None:
        assert self._tasks is not None
        for door in doors:
            door.open(self._tasks, self._accepted)

    def replace(self, door: Listener, listening: socket.socket) -> None:
        """Replace the socket of a door by another one under the same address."""
        door.close()
        door.socket = listening
        self._open_doors([door])

    def stop_listening(self) -> None:
        """Accept no further connections. Those that are not served yet are closed, and so find the next server."""
        self.closed = True
        for door in self.doors:
            door.close()

    def accept_waiting(self) -> bool:
        """Accept the connections that wait. Return whether there were any. Raises OSError as `accept_one`."""
        found = False
        for door in self.doors:
            while (connection := door.accept_one()) is not None:
                self._accepted(connection, door)
                found = True
        return found

    # --- receiving
    def _accepted(self, connection: socket.socket, door: Listener) -> None:
        if door.held is None:
            self._make_room_for_stranger(door)
            if not has_descriptors_left(RESERVE):
                connection.close()
                return
        self.last_number += 1
        stream, since = SocketStream(connection), self._wall_clock()
        arrival = SocketConnection(number=self.last_number, since=since, door=door, stream=stream)
        self.receive(arrival, partial(self._greet, arrival))

    def _make_room_for_stranger(self, door: Listener) -> None:
        """Drop the connection that has waited longest, if too many have not shown a token: a client shows
        it at once.
        """
        strangers = [each for each in self._arrivals() if each.door is door and not each.is_known]
        if len(strangers) >= MOST_STRANGERS:
            strangers[0].is_known = True  # so that it no longer counts until it has ended
            strangers[0].drop()

    def receive(self, arrival: SocketConnection, serve: Callable[[], Awaitable[None]]) -> None:
        """Begin to serve a connection, of any kind."""
        assert self._tasks is not None
        self.present[arrival.number] = arrival
        arrival.slot = self._long_messages.connection()
        self._tasks.start_soon(self._received, arrival, serve, name=f"connection {arrival.number}")

    async def _received(self, arrival: SocketConnection, serve: Callable[[], Awaitable[None]]) -> None:
        async with self._is_here(arrival):
            try:
                await serve()
            except UnknownProtocol:
                log.info("closed: its first bytes begin nothing that is served here")
            except Exception:
                log.exception("a connection failed")  # other connections go on
            finally:
                await arrival.stream.aclose()

    @asynccontextmanager
    async def _is_here(self, visit: ClientConnection) -> AsyncIterator[None]:
        CONNECTION.set(visit.number)
        self.present[visit.number] = visit
        self.quiet_since = anyio.current_time()
        try:
            yield
        finally:
            del self.present[visit.number]
            self.quiet_since = anyio.current_time()
            self.left.set()
            self.left = anyio.Event()

    async def _greet(self, arrival: SocketConnection) -> None:
        if not arrival.may_enter():
            return
        speech: WireProtocol | None = None
        with anyio.move_on_after(FIRST_MESSAGE_SECONDS):
            speech = await arrival.hear(speech_of)
        if speech is None or self.closed:
            return
        if speech is not WireProtocol.HTTP and arrival.door.held is None:
            raise UnknownProtocol  # lines have no token
        if speech is WireProtocol.PREFACE:
            await self._read_preface(arrival)
        elif speech is WireProtocol.LINES and (why := self.why_full()):
            error = overloaded(why)
            await arrival.dismiss(dump_error(None, error.code, error.message, error.data) + b"\n")
        else:
            await self.attend(arrival, self.place, speech)

    async def _read_preface(self, arrival: SocketConnection) -> None:
        line = arrival.take_line()
        try:
            said = parse_preface(line, self.place)
        except BadPreface as error:
            await arrival.dismiss(no(str(error)))
            return
        if isinstance(said, Question):
            arrival.asks = True
            await self._answer(said, arrival)
        elif why := self.why_full():
            await arrival.dismiss(no(why))
        else:
            arrival.is_guest = True
            await arrival.say(yes())
            await self.attend(arrival, said, None)

    # --- serving
    async def attend(self, peer: SocketConnection, place: ClientSettings, wire: WireProtocol | None) -> None:
        """Serve a client over its protocol, which may still have to be detected."""
        async with self.counted(peer):
            transport = await peer.speaks(self.line_limit, wire)
            if transport is not None:
                await peer.serve(self._server, transport, place)

    async def host(self, transport: Transport, place: ClientSettings) -> None:
        """Serve a client that did not connect to a door: the process that has started this one."""
        self.last_number += 1
        visit = ClientConnection(number=self.last_number, since=self._wall_clock(), pid=os.getppid())
        async with self._is_here(visit), self.counted(visit):
            await visit.serve(self._server, transport, place)

    @asynccontextmanager
    async def counted(self, visit: ClientConnection) -> AsyncIterator[None]:
        """Count a client until it leaves or its scope is cancelled; let it read the last output."""
        visit.is_guest = True
        log.info("connected: process %s", visit.pid)
        try:
            with visit.scope:
                yield
        finally:
            await visit.end()
            visit.is_guest = False
            log.info("left")
