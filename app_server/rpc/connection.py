"""Serves one client: lines become requests, results become responses.

Requests of one conversation run one after another, in a lane: a queue with one task, which exists from its first job to
the end of its last one. All others run concurrently.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Protocol, assert_never

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup
from msgspec import Struct

from app_server.rpc.errors import RpcError, overloaded
from app_server.rpc.outgoing import ClientReply, Outgoing, describe
from protocol import jsonrpc
from protocol.structs import Json

Job = Callable[[], Awaitable[None]]


class Lanes:
    """Starts jobs in a task group. Jobs must not raise."""

    def __init__(self, group: TaskGroup) -> None:
        self._group = group
        self._lanes: dict[str, deque[Job]] = {}
        self.running = 0
        """Jobs started or waiting in a lane."""

    def start(self, job: Job, lane: str | None = None) -> None:
        self.running += 1
        if lane is None:
            self._group.start_soon(self._run_one, job)
        elif lane in self._lanes:
            self._lanes[lane].append(job)
        else:
            self._lanes[lane] = deque([job])
            self._group.start_soon(self._run_lane, lane)

    async def _run_one(self, job: Job) -> None:
        try:
            await job()
        finally:
            self.running -= 1

    async def _run_lane(self, lane: str) -> None:
        jobs = self._lanes[lane]
        try:
            while jobs:
                await self._run_one(jobs[0])
                jobs.popleft()
        finally:
            del self._lanes[lane]


log = logging.getLogger(__name__)


LINES_AT_ONCE = 256
"""Lines handled before other tasks run: one read may contain a hundred thousand empty ones."""


class RpcReply(Struct, frozen=True):
    """The result of a request, and what goes on after the response was written."""

    result: bytes
    effects: AsyncGenerator[object, None] | None = None
    """Goes on once, or is closed where the client has left before that."""


class Dropped(Protocol):
    """A line that exceeded the limit."""

    @property
    def size(self) -> int: ...


class Incoming(Protocol):
    """The source of the client's lines."""

    def lines(self) -> AsyncIterator[Sequence[bytes | Dropped]]:
        """Batches of whole lines; ends when the client closes its end."""
        ...


class Router(Protocol):
    """Serves requests by method."""

    def lane(self, request: jsonrpc.Request) -> str | None:
        """Return the queue of this request; None: it runs at once."""
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

    def __init__(self, incoming: Incoming, outgoing: Outgoing, router: Router, max_in_flight: int) -> None:
        self._incoming, self._outgoing, self._router = incoming, outgoing, router
        self._max_in_flight = max_in_flight

    async def serve(self) -> None:
        """Returns when the client has closed its end; running requests are then cancelled."""
        async with anyio.create_task_group() as requests:
            lanes = Lanes(requests)
            async for lines in self._incoming.lines():
                for number, line in enumerate(lines, 1):
                    self._receive(line, lanes)
                    if number % LINES_AT_ONCE == 0:
                        await anyio.lowlevel.checkpoint()
                await self._outgoing.wait_for_capacity()
            requests.cancel_scope.cancel()

    def _receive(self, line: bytes | Dropped, lanes: Lanes) -> None:
        if not isinstance(line, bytes):
            log.warning("dropped a line of %d bytes", line.size)
            text = f"Parse error: a line of {line.size} bytes exceeds the limit"
            self._outgoing.fail(None, RpcError(jsonrpc.PARSE_ERROR, text, {"kind": "line_too_long"}))
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
                lanes.start(lambda: self._receive_notification(message))
            case jsonrpc.Response():
                self._receive_reply(message.id, ClientReply(result=message.result))
            case jsonrpc.ErrorAnswer():
                self._receive_reply(message.id, ClientReply(error=message.message))
            case _:
                assert_never(message)

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
        lanes.start(lambda: self._call(request), lane)

    async def _call(self, request: jsonrpc.Request) -> None:
        try:
            reply = await self._router.call(request)
        except Exception as error:
            self._outgoing.fail(request.id, self._router.to_rpc_error(error, request.method))
            return
        self._outgoing.respond(request.id, reply.result)
        if reply.effects is not None:
            async with aclosing(reply.effects) as effects:
                # Clients learn ids from the response, so it must be written, in a write of its own, before any event.
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
