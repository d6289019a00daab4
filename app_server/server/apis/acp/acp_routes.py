"""The methods of this protocol with their handlers, and the router of a connection that speaks it, which has error
codes of its own.

A request can be cancelled by the client; a prompt that is cancelled ends its turn and is answered like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

import anyio
from msgspec import Struct

from app_server.server.apis.acp.acp_errors import (
    not_initialized,
    request_cancelled,
    to_acp_error,
    unknown_method,
)
from app_server.server.apis.acp.acp_session import sessions_of
from app_server.server.apis.acp.handlers import prompts, requests, sessions, stored_sessions
from app_server.server.apis.contexts import ConnectionContext
from app_server.server.apis.router import FindRoute, Route, RouteFamilies, begin, parsed, route, written
from app_server.server.rpc.rpc_connection import RoutedRequest, RpcReply
from app_server_protocol.acp.sessions import CANCEL, CANCEL_REQUEST, NEW_SESSION, PROMPT, STEERING
from app_server_protocol.encoding import Json
from app_server_protocol.jsonrpc import INITIALIZE, Request, RequestId
from app_server_protocol.rpc_errors import RpcError, invalid_params

PROMPTS: Final = "prompts"
STORED: Final = "stored"
BEFORE_TURNS: Final = (NEW_SESSION.method, PROMPT.method, STEERING.method)
"""Methods that a client calls up to its first prompt."""
OF_STORED: Final = ("session/fork", "session/set_title")


class RunningRequest(Struct, frozen=True):
    scope: anyio.CancelScope
    prompt_of: str | None
    """Id of the session if the request is a prompt, else None."""


class AcpRouter:
    """Router of one connection."""

    def __init__(
        self,
        find: FindRoute,
        initialized: Callable[[], bool],
        initialize: Callable[[Json], bytes | None],
        cancel: Callable[[str], None],
        require_running: Callable[[str], None],
    ) -> None:
        """Begin without requests. `initialize` answers the usual form of that method, and returns None for others; its
        handler answers those. `cancel` ends the running turn of a session; `require_running` raises RpcError for
        methods that are refused while the server shuts down.
        """
        self._find, self._initialize = find, initialize
        self._initialized, self._cancel, self._require_running = initialized, cancel, require_running
        self._running: dict[RequestId, RunningRequest] = {}

    def route(self, request: Request) -> RoutedRequest:
        if request.method == INITIALIZE:
            return RoutedRequest(partial(self._serve_initialize, request), None)
        route = self._find(request.method)
        lane = None if route is None else route.lane(request.params)
        return RoutedRequest(partial(self._serve, request, route), lane)

    async def _serve_initialize(self, request: Request) -> RpcReply:
        result = self._initialize(request.params)
        if result is not None:
            return RpcReply(result, None)
        return await self._serve(request, self._find(request.method))

    async def _serve(self, request: Request, route: Route | None) -> RpcReply:
        if route is None:
            raise unknown_method(request.method)
        params = parsed(route.row, request.params, invalid_params, acp=True)
        if not self._initialized() and request.method != INITIALIZE:
            raise not_initialized()
        self._require_running(request.method)
        session = params.session_id if request.method == PROMPT.method else None
        running = RunningRequest(anyio.CancelScope(), session)
        self._running[request.id] = running
        try:
            with running.scope:
                result, effects = begin(route, params)
                return RpcReply(written(await result), effects)
        finally:
            if self._running.get(request.id) is running:
                del self._running[request.id]
        raise request_cancelled()

    async def receive_notification(self, method: str, params: Json) -> None:
        """Handle `session/cancel` and `$/cancel_request`; ignore others."""
        match method, params:
            case CANCEL.method, {"sessionId": str(session_id)}:
                self._cancel(session_id)
            case CANCEL_REQUEST.method, {"requestId": int() | str() as id}:
                running = self._running.get(id)
                if running is None:
                    return
                if running.prompt_of is not None:
                    self._cancel(running.prompt_of)
                else:
                    running.scope.cancel()
            case _:
                pass

    def to_rpc_error(self, error: BaseException, method: str) -> RpcError:
        return to_acp_error(error, method)


def _family(method: str) -> str:
    if method in BEFORE_TURNS:
        return PROMPTS
    return STORED if method in OF_STORED else "others"


def open_router(context: ConnectionContext) -> AcpRouter:
    """Make the router of a connection."""
    opened = sessions_of(context)
    context.conversations.on_renamed[context.client] = opened.renamed

    def cancel(session_id: str) -> None:
        session = opened.find(session_id)
        if session is not None:
            session.turns.cancel()

    def make(family: str) -> Iterable[Route]:
        if family == PROMPTS:
            return (
                route(NEW_SESSION, sessions.new_session, context),
                route(PROMPT, prompts.prompt, context),
                route(STEERING, prompts.steering, context),
            )
        routes: Iterable[Route] = (stored_sessions if family == STORED else requests).routes(context)
        return routes

    families = RouteFamilies(_family, make)
    client = context.handshake.client
    return AcpRouter(
        families.find,
        lambda: client.initialized,
        partial(sessions.answer_initialize, context),
        cancel,
        context.require_running,
    )
