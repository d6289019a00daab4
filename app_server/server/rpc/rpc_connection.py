"""Serves one client: lines become requests, results become responses.

Where several clients are connected, a turn of the event loop takes one line of each, so no flood of requests delays the
answers of others.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Protocol

import anyio
import anyio.lowlevel
from msgspec import Struct

from app_server.server.rpc.lanes import LaneName, Lanes, ServerLanes
from app_server.server.rpc.outgoing import ClientReply, OutboundQueue, describe
from app_server_protocol import jsonrpc
from app_server_protocol.encoding import Json
from app_server_protocol.framing import Oversized
from app_server_protocol.rpc_errors import RpcError, overloaded

log = logging.getLogger(__name__)


LINES_AT_ONCE = 256
"""Number of lines handled before other tasks run: one read may contain a hundred thousand empty ones."""


class RpcReply(Struct, frozen=True):
    """The result of a request, and its effects, which follow the response."""

    result: bytes
    effects: AsyncGenerator[object, None] | None = None
    """Generator that is resumed once, in the step that queues the response: nothing comes between them."""


class RoutedRequest(Struct, frozen=True):
    """A request whose route was found."""

    serve: Callable[[], Awaitable[RpcReply]]
    """Function that serves the request; may raise any exception."""
    lane: LaneName | None = None
    """Lane of the request; None if the request runs at once."""


class Router(Protocol):
    """Serves requests by method."""

    def route(self, request: jsonrpc.Request) -> RoutedRequest:
        """Find the route of a request. Raises RpcError if there can be none now."""
        ...

    async def receive_notification(self, method: str, params: Json) -> None: ...

    def to_rpc_error(self, error: BaseException, method: str) -> RpcError:
        """Convert an exception of a request into an error response."""
        ...


class Connection:
    """Serves one transport until the client closes it."""

    def __init__(
        self,
        incoming: AsyncIterator[Sequence[bytes | Oversized]],
        outgoing: OutboundQueue,
        router: Router,
        max_in_flight: int,
        lanes: ServerLanes | None = None,
    ) -> None:
        """Begin without requests. `incoming` are batches of the client's lines; they end when it closes its end.
        `lanes` are those of the server.
        """
        self._incoming, self._outgoing, self._router = incoming, outgoing, router
        self._max_in_flight = max_in_flight
        self._server = ServerLanes() if lanes is None else lanes
        self._lanes: Lanes | None = None

    @property
    def in_work(self) -> int:
        """Number of requests that run or wait in a lane."""
        return 0 if self._lanes is None else self._lanes.running

    async def serve(self) -> None:
        """Serve until the client has closed its end; running requests are then cancelled."""
        async with anyio.create_task_group() as requests:
            lanes = self._lanes = self._server.connect(requests)
            try:
                async for lines in self._incoming:
                    for number, line in enumerate(lines, 1):
                        self._receive(line, lanes)
                        if self._server.crowded or number % LINES_AT_ONCE == 0:
                            await anyio.lowlevel.checkpoint()
                    await self._outgoing.wait_for_capacity()
            finally:
                self._server.disconnect(lanes)
            requests.cancel_scope.cancel()

    def _receive(self, line: bytes | Oversized, lanes: Lanes) -> None:
        match self._parse(line):
            case jsonrpc.Request() as request:
                if lanes.running >= self._max_in_flight:
                    text = f"Server overloaded: {lanes.running} requests are being served; try again"
                    self._outgoing.fail(request.id, overloaded(text))
                    return
                try:
                    routed = self._router.route(request)
                except RpcError as error:
                    self._outgoing.fail(request.id, error)
                    return
                lanes.start(partial(self._serve_request, request, routed.serve), routed.lane)
            case jsonrpc.Notification() as notification:
                lanes.start(lambda _: self._receive_notification(notification))
            case jsonrpc.Response() as response:
                self._receive_reply(response.id, ClientReply(result=response.result))
            case jsonrpc.ErrorAnswer() as answer:
                self._receive_reply(answer.id, ClientReply(error=answer.message))
            case None:
                pass

    def _parse(self, line: bytes | Oversized) -> jsonrpc.Message | None:
        """Return the message in a line; None if there is none. A line that is not a message is answered with its
        error.
        """
        if not isinstance(line, bytes):
            log.warning("dropped a line of %d bytes", line.size)
            text = f"Parse error: a line of {line.size} bytes exceeds the limit"
            error = RpcError(jsonrpc.PARSE_ERROR, text, {"kind": "line_too_long"})
            if line.crowded:
                what = f"a line of {line.size} bytes was dropped, as others are sending long ones"
                error = overloaded(f"Server overloaded: {what}; try again")
            self._outgoing.fail(None, error)
            return None
        if not line or line.isspace():
            return None
        try:
            return jsonrpc.parse_message(line)
        except jsonrpc.ParseError as parse_error:
            self._refuse(parse_error)
            return None

    def _refuse(self, error: jsonrpc.ParseError) -> None:
        log.warning("unusable message: %s", error.message)
        refusal = ClientReply(error=error.message)
        if error.refuses and error.id is not None and self._outgoing.pending.resolve(error.id, refusal):
            return
        kind = "parse" if error.code == jsonrpc.PARSE_ERROR else "message"
        self._outgoing.fail(error.id, RpcError(error.code, error.message, {"kind": kind}))

    async def _serve_request(
        self,
        request: jsonrpc.Request,
        serve: Callable[[], Awaitable[RpcReply]],
        answered: Callable[[], None],
    ) -> None:
        try:
            reply = await serve()
        except Exception as error:
            self._outgoing.fail(request.id, self._router.to_rpc_error(error, request.method))
            return
        # Clients learn ids from a response with effects, so it is written before any event, and not together with one.
        self._outgoing.respond(request.id, reply.result, ends_write=reply.effects is not None)
        if reply.effects is not None:
            answered()
            async with aclosing(reply.effects) as effects:
                try:
                    await anext(effects, None)
                except Exception as error:
                    # The request was answered already, so the error can only be logged.
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
