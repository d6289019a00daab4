"""One client: lines become calls, results become answers.

Owns parsing, dispatch and the answer to everything that is no valid message. Knows no method: `Router` says what
there is. `RpcReply.after_response` runs after the response was written, in the request's own lane, so nothing that the
request causes can overtake it.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Protocol, assert_never

import anyio
import anyio.lowlevel

from app_server.rpc.errors import RpcError, overloaded
from app_server.rpc.lanes import Lanes
from app_server.rpc.outgoing import Outgoing, describe
from app_server.rpc.pending import ClientReply
from protocol.base import Json
from protocol.jsonrpc import (
    PARSE_ERROR,
    ErrorAnswer,
    Notification,
    ParseError,
    Request,
    Response,
    parse_message,
)
from protocol.records import dataclass

log = logging.getLogger(__name__)


LINES_AT_ONCE = 256
"""So many lines are taken in before other tasks run: a client may send a hundred thousand empty ones in one piece."""


@dataclass(frozen=True, slots=True)
class RpcReply:
    """A handler's answer, and what to do once it is on its way."""

    result: bytes
    after_response: Callable[[], Awaitable[None]] | None = None


class Dropped(Protocol):
    """A line that was too long to be kept."""

    @property
    def size(self) -> int: ...


class Incoming(Protocol):
    """Where the client's lines come from."""

    def lines(self) -> AsyncIterator[Sequence[bytes | Dropped]]:
        """Batches of whole lines; ends when the client has closed its end."""
        ...


class Router(Protocol):
    """The methods there are."""

    def lane(self, request: Request) -> str | None:
        """The queue in which this request waits its turn; None: it does not."""
        ...

    async def call(self, request: Request) -> RpcReply:
        """Serve it. May raise anything."""
        ...

    async def notified(self, method: str, params: Json) -> None: ...

    def error(self, error: BaseException, method: str) -> RpcError:
        """What the client is told about an exception of `call`."""
        ...


class Connection:
    """Serves one transport until the client closes it."""

    def __init__(self, incoming: Incoming, outgoing: Outgoing, router: Router, max_in_flight: int) -> None:
        self._incoming, self._outgoing, self._router = incoming, outgoing, router
        self._max_in_flight = max_in_flight

    async def serve(self) -> None:
        """Returns when the client has closed its end; running requests are cancelled then."""
        async with anyio.create_task_group() as requests:
            lanes = Lanes(requests)
            async for lines in self._incoming.lines():
                for number, line in enumerate(lines, 1):
                    self._receive(line, lanes)
                    if number % LINES_AT_ONCE == 0:
                        await anyio.lowlevel.checkpoint()
                await self._outgoing.room()
            requests.cancel_scope.cancel()

    def _receive(self, line: bytes | Dropped, lanes: Lanes) -> None:
        if not isinstance(line, bytes):
            log.warning("dropped a line of %d bytes", line.size)
            message = f"Parse error: a line of {line.size} bytes exceeds the limit"
            self._outgoing.fail(None, RpcError(PARSE_ERROR, message, {"kind": "line_too_long"}))
            return
        if not line or line.isspace():
            return
        try:
            message_ = parse_message(line)
        except ParseError as error:
            log.warning("unusable message: %s", error.message)
            self._outgoing.fail(
                error.id,
                RpcError(
                    error.code, error.message, {"kind": "parse" if error.code == PARSE_ERROR else "message"}
                ),
            )
            return
        match message_:
            case Request():
                self._request(message_, lanes)
            case Notification():
                lanes.start(lambda: self._notified(message_))
            case Response():
                self._answered(message_.id, ClientReply(result=message_.result))
            case ErrorAnswer():
                self._answered(message_.id, ClientReply(error=message_.message))
            case _:
                assert_never(message_)

    def _request(self, request: Request, lanes: Lanes) -> None:
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

    async def _call(self, request: Request) -> None:
        try:
            reply = await self._router.call(request)
        except Exception as error:
            self._outgoing.fail(request.id, self._router.error(error, request.method))
            return
        self._outgoing.respond(request.id, reply.result)
        if reply.after_response is not None:
            # Clients learn from the answer what to listen for: it must have left, alone, before anything follows.
            await self._outgoing.written()
            try:
                await reply.after_response()
            except Exception as error:
                # The answer is out already; what is left is to say so where somebody may look.
                log.error("after %s: %s", request.method, self._router.error(error, request.method).message)

    async def _notified(self, notification: Notification) -> None:
        try:
            await self._router.notified(notification.method, notification.params)
        except Exception:
            log.exception("notification %s", notification.method[:200])

    def _answered(self, id: int | str, reply: ClientReply) -> None:
        if not self._outgoing.pending.resolve(id, reply):
            log.info("an answer to no request: id %s, %s", describe(id), describe(reply))
