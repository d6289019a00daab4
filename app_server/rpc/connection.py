"""Serves one client: lines become requests, results become responses. Requests of one conversation are served one after
another, over whichever connection they come, and all others at once.

Where several clients are connected, a turn of the event loop takes one line of each, so no flood of requests delays the
answers of others. A request that was answered lets the next one of its conversation begin. What it has still to do
keeps the requests of its own connection waiting and nobody else's: it may depend on how fast that client reads.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import NamedTuple, Protocol

import anyio
import anyio.lowlevel
import msgspec
from anyio.abc import TaskGroup
from msgspec import Struct

from app_server.rpc.errors import RpcError, overloaded
from app_server.rpc.outgoing import ClientReply, Outgoing, describe
from app_server.transport.framing import Oversized
from protocol import jsonrpc
from protocol.structs import Json

log = logging.getLogger(__name__)


LINES_AT_ONCE = 256
"""Lines handled before other tasks run: one read may contain a hundred thousand empty ones."""

WRITTEN_SECONDS = 5.0
"""What follows from a request waits so long until its response was written: a client that reads has it by then, and
what one that does not read would be sent must not pile up behind it.
"""


Job = Callable[[Callable[[], None]], Awaitable[None]]
"""Serves a request, and must not raise. It calls what it is given once it has answered, if it goes on after that."""


class LaneName(NamedTuple):
    name: str
    for_all: bool
    """It is one lane for all connections of the server; else each has one of that name."""


class Lane(Struct, eq=False):
    """The jobs that are served one after another."""

    waiting: deque[tuple[Lanes, Job]] = msgspec.field(default_factory=deque)
    answering: bool = False
    """One of them is being served and was not answered yet."""
    settling: set[Lanes] = msgspec.field(default_factory=set)
    """The connections of those that were answered and go on."""


class ServerLanes:
    """The lanes of a server. One exists from its first job to the end of its last."""

    def __init__(self) -> None:
        self._lanes: dict[tuple[Lanes | None, str], Lane] = {}
        self._connections: set[Lanes] = set()

    @property
    def crowded(self) -> bool:
        """Whether several connections are served."""
        return len(self._connections) > 1

    def connect(self, group: TaskGroup) -> Lanes:
        """Return what starts the jobs of one connection, in this task group."""
        lanes = Lanes(group, self)
        self._connections.add(lanes)
        return lanes

    def disconnect(self, lanes: Lanes) -> None:
        """Forget the jobs of a connection that have not begun."""
        self._connections.discard(lanes)
        for lane in self._lanes.values():
            lane.waiting = deque(each for each in lane.waiting if each[0] is not lanes)

    def enter(self, name: LaneName, lanes: Lanes, job: Job) -> None:
        """Start a job behind those that are in its lane."""
        key = None if name.for_all else lanes, name.name
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = Lane()
        lane.waiting.append((lanes, job))
        self._go_on(key, lane)

    def _go_on(self, key: tuple[Lanes | None, str], lane: Lane) -> None:
        """Start the next job, if it may begin."""
        if lane.answering:
            return
        for position, (lanes, job) in enumerate(lane.waiting):
            if lanes not in lane.settling:
                del lane.waiting[position]
                lane.answering = True
                lanes.group.start_soon(self._run, key, lane, lanes, job)
                return
        if not lane.waiting and not lane.settling:
            del self._lanes[key]

    async def _run(self, key: tuple[Lanes | None, str], lane: Lane, lanes: Lanes, job: Job) -> None:
        def answered() -> None:
            lane.answering = False
            lane.settling.add(lanes)
            self._go_on(key, lane)

        try:
            await job(answered)
        finally:
            lanes.running -= 1
            if lanes in lane.settling:
                lane.settling.remove(lanes)
            else:
                lane.answering = False
            self._go_on(key, lane)


class Lanes:
    """Starts the jobs of one connection."""

    def __init__(self, group: TaskGroup, server: ServerLanes) -> None:
        self.group, self._server = group, server
        self.running = 0
        """Jobs started or waiting in a lane."""

    def start(self, job: Job, lane: LaneName | None = None) -> None:
        """Start a job: at once, or in its lane."""
        self.running += 1
        if lane is None:
            self.group.start_soon(self._run, job)
        else:
            self._server.enter(lane, self, job)

    async def _run(self, job: Job) -> None:
        try:
            await job(lambda: None)
        finally:
            self.running -= 1


class RpcReply(Struct, frozen=True):
    """The result of a request, and what goes on after the response was written."""

    result: bytes
    effects: AsyncGenerator[object, None] | None = None
    """Goes on once, or is closed where the client has left before that."""


class Router(Protocol):
    """Serves requests by method."""

    def lane(self, request: jsonrpc.Request) -> LaneName | None:
        """Return the lane of this request; None: it runs at once."""
        ...

    async def call(self, request: jsonrpc.Request) -> RpcReply:
        """Serve the request. May raise any exception."""
        ...

    async def receive_notification(self, method: str, params: Json) -> None: ...

    def to_rpc_error(self, error: BaseException, method: str) -> RpcError:
        """Convert an exception of `call` into an error response."""
        ...


class Connection:
    """Serves one transport until the client closes it."""

    def __init__(
        self,
        incoming: AsyncIterator[Sequence[bytes | Oversized]],
        outgoing: Outgoing,
        router: Router,
        max_in_flight: int,
        lanes: ServerLanes | None = None,
    ) -> None:
        """`incoming` are batches of the client's lines; they end when it closes its end. `lanes` are those of the
        server.
        """
        self._incoming, self._outgoing, self._router = incoming, outgoing, router
        self._max_in_flight = max_in_flight
        self._server = ServerLanes() if lanes is None else lanes
        self._lanes: Lanes | None = None

    @property
    def in_work(self) -> int:
        """Return the number of requests that are served or wait for that."""
        return 0 if self._lanes is None else self._lanes.running

    async def serve(self) -> None:
        """Returns when the client has closed its end; running requests are then cancelled."""
        async with anyio.create_task_group() as requests:
            lanes = self._lanes = self._server.connect(requests)
            try:
                async for lines in self._incoming:
                    await self._receive_all(lines, lanes)
                    await self._outgoing.wait_for_capacity()
            finally:
                self._server.disconnect(lanes)
            requests.cancel_scope.cancel()

    async def _receive_all(self, lines: Sequence[bytes | Oversized], lanes: Lanes) -> None:
        for number, line in enumerate(lines, 1):
            self._receive(line, lanes)
            if self._server.crowded or number % LINES_AT_ONCE == 0:
                await anyio.lowlevel.checkpoint()

    def _receive(self, line: bytes | Oversized, lanes: Lanes) -> None:
        if not isinstance(line, bytes):
            log.warning("dropped a line of %d bytes", line.size)
            text = f"Parse error: a line of {line.size} bytes exceeds the limit"
            error = RpcError(jsonrpc.PARSE_ERROR, text, {"kind": "line_too_long"})
            if line.crowded:
                what = f"a line of {line.size} bytes was dropped, as others are sending long ones"
                error = overloaded(f"Server overloaded: {what}; try again")
            self._outgoing.fail(None, error)
            return
        if not line or line.isspace():
            return
        try:
            message = jsonrpc.parse_message(line)
        except jsonrpc.ParseError as error:
            log.warning("unusable message: %s", error.message)
            refusal = ClientReply(error=error.message)
            if error.refuses and error.id is not None and self._outgoing.pending.resolve(error.id, refusal):
                return
            self._outgoing.fail(
                error.id,
                RpcError(
                    error.code,
                    error.message,
                    {"kind": "parse" if error.code == jsonrpc.PARSE_ERROR else "message"},
                ),
            )
            return
        match message:
            case jsonrpc.Request():
                self._start_request(message, lanes)
            case jsonrpc.Notification():
                lanes.start(lambda _: self._receive_notification(message))
            case jsonrpc.Response():
                self._receive_reply(message.id, ClientReply(result=message.result))
            case jsonrpc.ErrorAnswer():
                self._receive_reply(message.id, ClientReply(error=message.message))

    def _start_request(self, request: jsonrpc.Request, lanes: Lanes) -> None:
        if lanes.running >= self._max_in_flight:
            self._outgoing.fail(
                request.id,
                overloaded(f"Server overloaded: {lanes.running} requests are being served; try again"),
            )
            return
        try:
            lane = self._router.lane(request)
        except RpcError as error:
            self._outgoing.fail(request.id, error)
            return
        lanes.start(partial(self._call, request), lane)

    async def _call(self, request: jsonrpc.Request, answered: Callable[[], None]) -> None:
        try:
            reply = await self._router.call(request)
        except Exception as error:
            self._outgoing.fail(request.id, self._router.to_rpc_error(error, request.method))
            return
        self._outgoing.respond(request.id, reply.result)
        if reply.effects is not None:
            answered()
            async with aclosing(reply.effects) as effects:
                # Clients learn ids from the response, so it must be written, in a write of its own, before any event.
                with anyio.move_on_after(WRITTEN_SECONDS):
                    await self._outgoing.written()
                try:
                    await anext(effects, None)
                except Exception as error:
                    # The response was already written, so the error can only be logged.
                    said = self._router.to_rpc_error(error, request.method).message
                    log.error("after %s: %s", request.method, said)

    async def _receive_notification(self, notification: jsonrpc.Notification) -> None:
        try:
            await self._router.receive_notification(notification.method, notification.params)
        except Exception:
            log.exception("notification %s", notification.method[:200])

    def _receive_reply(self, id: int | str, reply: ClientReply) -> None:
        if not self._outgoing.pending.resolve(id, reply):
            log.info("a response to no request: id %s, %s", describe(id), describe(reply))
