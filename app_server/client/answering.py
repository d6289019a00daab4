"""Answers the requests of the server: each is handled by a task of its own, so that no handler delays another.

Every request is answered: a request without a handler is declined, an unknown one refused. When the server withdraws a
request, its handler is cancelled.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import TypeAlias, TypeVar

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup
from pydantic import ValidationError

from app_server.client.approval_requests import ApprovalReply, ApprovalRequest, parse_request, reply_of
from app_server.client.connection import ServerConnection
from app_server.client.failures import HandlerFailed
from app_server.client.request_client import METHOD_NOT_FOUND
from app_server_protocol.jsonrpc import INVALID_PARAMS, OVERLOADED, Request, RequestId
from app_server_protocol.rpc_errors import RpcError
from app_server_protocol.wire_fields import describe_validation_error, unknown_method

log = logging.getLogger(__name__)

A = TypeVar("A")
R = TypeVar("R")

MOST_OPEN = 256
"""Maximum number of requests that may be open at once; the others are declined."""

ApprovalAnswer: TypeAlias = ApprovalReply | bool | None
"""Return value of a handler: the result of a method of the request; True to accept; False or None to decline."""

ApprovalHandler: TypeAlias = Callable[[ApprovalRequest], ApprovalAnswer | Awaitable[ApprovalAnswer]]
"""Handler of a request. A coroutine function runs in the event loop, a plain function in a worker thread, where it may
wait for a person.
"""


class RequestAnswerer:
    """Runs the handlers of requests, each in a task of its own."""

    def __init__(self, group: TaskGroup) -> None:
        self._group = group
        self._open: dict[RequestId, anyio.CancelScope] = {}

    def answer(
        self,
        asked: Request,
        connection: ServerConnection,
        handler: ApprovalHandler | None,
        item: object,
        failed: Callable[[HandlerFailed], None],
    ) -> None:
        """Start a task that answers the request. `failed` receives a handler's exception."""
        id, method = asked.id, asked.method
        if id in self._open:
            return  # repeated, since its thread was opened again: the running handler answers it
        try:
            request = parse_request(method, asked.params, item)
        except ValidationError as error:
            what = describe_validation_error(error)[0]
            connection.refuse(id, RpcError(INVALID_PARAMS, f"{method}: {what}"))
            return
        if request is None:
            connection.refuse(id, RpcError(METHOD_NOT_FOUND, unknown_method(method)))
        elif len(self._open) >= MOST_OPEN:
            connection.refuse(id, RpcError(OVERLOADED, f"{len(self._open)} requests are open already"))
        elif handler is None:
            connection.respond(id, request.decline().result)
        else:
            scope = self._open[id] = anyio.CancelScope()
            self._group.start_soon(self._handle, id, scope, request, connection, handler, failed)

    async def _handle(
        self,
        id: RequestId,
        scope: anyio.CancelScope,
        request: ApprovalRequest,
        connection: ServerConnection,
        handler: ApprovalHandler,
        failed: Callable[[HandlerFailed], None],
    ) -> None:
        with scope:
            try:
                reply = reply_of(request, await call_handler(handler, request))
            except Exception as error:
                log.exception("the handler of a %s failed; it is declined", type(request).__name__)
                reply = request.decline()
                failure = HandlerFailed(f"on_approval failed for a {type(request).__name__}: {error!r}")
                failure.__cause__ = error
                failed(failure)
            finally:
                self._open.pop(id, None)
            connection.respond(id, reply.result)

    def withdraw(self, id: RequestId) -> None:
        """Cancel the handler of a request that needs no answer any more."""
        if (scope := self._open.get(id)) is not None:
            scope.cancel()


async def call_handler(handler: Callable[[A], R | Awaitable[R]], request: A) -> R:
    """Call a handler: a coroutine function in the event loop, a plain function in a worker thread."""
    answer: R | Awaitable[R]
    in_this_loop: bool = inspect.iscoroutinefunction(handler)
    if in_this_loop:
        answer = handler(request)
    else:
        # The thread is abandoned if the request is withdrawn: a thread that waits for a person cannot be ended.
        answer = await anyio.to_thread.run_sync(handler, request, abandon_on_cancel=True)
    return await answer if isinstance(answer, Awaitable) else answer
