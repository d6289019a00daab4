"""Routes, and the dispatch of requests to their handlers by method, for all APIs of a connection.

A route is a row of a method table, its handler, and the handler's context (`contexts`); mypy checks that the parameters
and the result of the handler are those of the row. The router owns the rules for every method: `initialize` comes
first, experimental methods need an opt-in, parameters are parsed and their errors worded, and requests of one
conversation are kept in order.
"""

from __future__ import annotations

import json
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Mapping,
)
from functools import partial
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar, overload

from msgspec import Struct
from pydantic import ValidationError

from app_server.engine.support.client_info import ClientProfile
from app_server.engine.support.lazy import Lazy
from app_server.server.apis import error_responses
from app_server.server.apis.ignored_parameters import ParameterCheck
from app_server.server.rpc.lanes import LaneName
from app_server.server.rpc.rpc_connection import RoutedRequest, RpcReply
from app_server_protocol.base import CancellableParams, WireModel
from app_server_protocol.encoding import Json, JsonSerializable
from app_server_protocol.jsonrpc import INITIALIZE, Request
from app_server_protocol.method_table import AnyClientRequest, ClientRequest, NoResult, by_method
from app_server_protocol.rpc_errors import RpcError, invalid_field, invalid_request
from app_server_protocol.wire_fields import describe_validation_error, unknown_method

if TYPE_CHECKING:
    from app_server.server.apis.contexts import ConnectionContext

C = TypeVar("C")
P = TypeVar("P", bound=WireModel)
R = TypeVar("R", bound=JsonSerializable)
F = TypeVar("F")

Result = TypeVar("Result")

Handler = Callable[[C, P], Awaitable[Result] | AsyncIterator[Result]]
"""A handler returns the result, or nothing if the row has none. A handler with effects that must not overtake the
response yields the result, once: the code after the `yield` runs when the response is queued, before anything else
happens, up to its first wait; and before the next request of this client about the same conversation.
"""


class Route(Struct, frozen=True):
    """Create it with `route`, whose signature relates the types."""

    row: AnyClientRequest
    handle: Callable[..., Awaitable[Json] | AsyncIterator[Json]]
    """Handler of the request; takes parameters as `row.parse` returns them, and before them the context that `find`
    returns.
    """
    find: Callable[[Json], object] | None = None
    """Function that finds the context by the parameters; None if the handler has its context already."""
    checks: tuple[Callable[[Json], None], ...] = ()
    """Checks of the parameters before the handler; each raises RpcError for a request that is refused."""

    @property
    def method(self) -> str:
        return self.row.method

    def lane(self, params: Json) -> LaneName | None:
        """Return the lane of the conversation whose requests are served in order with this one."""
        if self.row.ordered_by is None or not isinstance(params, dict):
            return None
        id = params.get(self.row.ordered_by)
        return LaneName(id.lower(), self.row.ordered_for_all) if isinstance(id, str) else None

    def checked(self, check: Callable[[Json], None]) -> Route:
        """Return the route with a check more, which comes before the others."""
        return Route(self.row, self.handle, self.find, (check, *self.checks))


@overload
def route(row: ClientRequest[P, NoResult], handler: Handler[C, P, None], context: C) -> Route: ...


@overload
def route(row: ClientRequest[P, R], handler: Handler[C, P, R], context: C) -> Route: ...


def route(row: ClientRequest[P, R], handler: Handler[C, P, R | None], context: C) -> Route:
    return Route(row, partial(handler, context))


@overload
def route_in(
    row: ClientRequest[P, NoResult], handler: Handler[C, P, None], find: Callable[[P], C]
) -> Route: ...


@overload
def route_in(row: ClientRequest[P, R], handler: Handler[C, P, R], find: Callable[[P], C]) -> Route: ...


def route_in(row: ClientRequest[P, R], handler: Handler[C, P, R | None], find: Callable[[P], C]) -> Route:
    """Return the route of a method about the conversation that its parameters name. `find` returns the context of that
    conversation.
    """
    return Route(row, handler, find)


def constant(row: ClientRequest[P, R], result: R) -> Route:
    """Return a route that gives every request the same result."""

    async def handle(params: P) -> R:
        return result

    return Route(row, handle)


def begin(route: Route, params: Json) -> tuple[Awaitable[Json], AsyncGenerator[Json, None] | None]:
    """Check the parameters of a request, and return its result to await, and the effects that follow the response."""
    for check in route.checks:
        check(params)
    answering = route.handle(params) if route.find is None else route.handle(route.find(params), params)
    if isinstance(answering, AsyncIterator):
        assert isinstance(answering, AsyncGenerator)  # such handlers are generator functions
        return anext(answering), answering
    return answering, None


def written(result: JsonSerializable | None) -> bytes:
    """Return the result of a handler in JSON."""
    return (NoResult() if result is None else result).to_json()


def experimental(what: str) -> RpcError:
    """Return the error for a method or field that the client has to opt in to."""
    return invalid_request(f"{what} requires experimentalApi capability", "experimental_api_required")


FindRoute = Callable[[str], Route | None]
"""Function that finds the route of a method in one API; None if there is none."""


TellIgnored = Callable[[str, str | None, bool], None]
"""Function that warns the client about parameters that were ignored. Its arguments are the warning, the id of the
conversation that the request was about or opened, and whether the client used the thread API.
"""


class HandlerModule(Protocol):
    """A module with the handlers of a family of methods. It is loaded when its routes are first read."""

    def routes(self, context: ConnectionContext, /) -> Iterable[Route]:
        """Return the routes of one connection."""
        ...


class HandlerModules(Struct, frozen=True):
    """The modules with the handlers of one API."""

    by_method: Mapping[str, HandlerModule]
    """Module that serves a method, by the method or the longest prefix of it that is listed."""
    follows: Mapping[HandlerModule, HandlerModule] = {}
    """Module that serves the turns, by the module that opens their conversations."""

    def serving(self, method: str) -> HandlerModule | None:
        """Return the module that serves a method; None if there is no such method."""
        while method and method not in self.by_method:
            method = method.rpartition("/")[0]
        return self.by_method.get(method)

    def load_for(self, method: str) -> None:
        """Load the module that serves a method; for a method that opens a conversation, also the module that serves
        turns.
        """
        module = self.serving(method)
        while module is not None:
            assert callable(module.routes)  # reading it loads the module
            module = self.follows.get(module)


class RouteFamilies(Generic[F]):
    """The routes of one API on one connection. Those of a family are made when one of its methods is first used."""

    def __init__(self, family: Callable[[str], F | None], make: Callable[[F], Iterable[Route]]) -> None:
        self._family, self._make = family, make
        self._made: set[F] = set()
        self._routes: dict[str, Route] = {}

    def find(self, method: str) -> Route | None:
        found = self._routes.get(method)
        if found is None and (family := self._family(method)) is not None and family not in self._made:
            self._routes |= by_method(self._make(family))
            self._made.add(family)
            found = self._routes.get(method)
        return found


class MethodRouter:
    """Router of one connection."""

    def __init__(
        self,
        conversations: Callable[[], FindRoute],
        threads: Callable[[], FindRoute],
        in_both: Collection[str],
        client: ClientProfile,
        require_running: Callable[[str], None] = lambda method: None,
        tell_ignored: TellIgnored = lambda notice, conversation, threads: None,
        initialize: Callable[[Json], bytes | None] = lambda params: None,
    ) -> None:
        """Begin without routes. The routes of an API are loaded when the client first uses it. Methods `in_both` are
        served by the thread API to clients that announce capabilities. `require_running` raises RpcError for methods
        that are refused while the server shuts down. `initialize` answers the usual form of that method, and returns
        None for others, which the conversation API answers.
        """
        self._initialize = initialize
        self._parameters = ParameterCheck(lambda: client.strict_parameters)
        self._tell_ignored = tell_ignored
        self._conversations, self._threads = Lazy(conversations), Lazy(threads)
        self._in_both = in_both
        self._client, self._require_running = client, require_running

    def route(self, request: Request) -> RoutedRequest:
        """Find the route of a request, and its lane: that of its conversation, under the name that either API has for
        it.
        """
        if request.method == INITIALIZE:
            return RoutedRequest(partial(self._serve_initialize, request), None)
        api = self._threads if self._speaks_threads(request.method) else self._conversations
        route = api.get()(request.method)
        lane = None if route is None else route.lane(request.params)
        return RoutedRequest(partial(self._serve, request, route), lane)

    async def _serve_initialize(self, request: Request) -> RpcReply:
        result = self._initialize(request.params)
        if result is not None:
            return RpcReply(result, None)
        return await self._serve(request, self._conversations.get()(request.method))

    async def _serve(self, request: Request, route: Route | None) -> RpcReply:
        if route is None:
            text = unknown_method(request.method) + error_responses.of_another_protocol(
                request.method, acp=False
            )
            raise invalid_request(text, "unknown_method")
        params = parsed(route.row, request.params)
        if not self._client.initialized and request.method != INITIALIZE:
            raise invalid_request("Not initialized", "not_initialized")
        if route.row.experimental and not self._client.experimental_api:
            raise experimental(request.method)
        self._require_running(request.method)
        if isinstance(params, CancellableParams):
            params.of_request(request.id)
        notice = self._parameters.check(request.method, request.params, params)
        result, effects = begin(route, params)
        reply = RpcReply(written(await result), effects)
        if notice is not None:
            conversation = _conversation(request.params, reply.result)
            self._tell_ignored(notice, conversation, self._speaks_threads(request.method))
        return reply

    def _speaks_threads(self, method: str) -> bool:
        return "/" in method or (method in self._in_both and self._client.names_capabilities)

    async def receive_notification(self, method: str, params: Json) -> None:
        """Ignore the notification: nothing depends on `initialized`, and newer clients send notifications that are not
        known here.
        """

    def to_rpc_error(self, error: BaseException, method: str) -> RpcError:
        return error_responses.to_rpc_error(error, method)


def _conversation(params: Json, result: bytes) -> str | None:
    """Return the id of the conversation that a request of the conversation API names, or that it opened."""
    for where in (params, json.loads(result)):
        id = where.get("conversationId") if isinstance(where, dict) else None
        if isinstance(id, str):
            return id
    return None


def parsed(
    row: AnyClientRequest,
    raw: Json,
    refused: Callable[[str, str | None], RpcError] = invalid_field,
    *,
    acp: bool = False,
) -> Json:
    """Return the parameters of a request. Raises the RpcError that `refused` makes of a text and the name of a field.
    `acp` says whether this server speaks the Agent Client Protocol.
    """
    try:
        return row.parse(raw)
    except ValidationError as error:
        message, field = describe_validation_error(error)
        if row.method == INITIALIZE:
            message += error_responses.initialize_of_another_protocol(raw, acp=acp)
        raise refused(message, field or None) from None
