"""Requests to a server, and the connection for them: all that a program needs that opens no thread.

`AppServer` adds threads, streams and approvals. This part is quick to import, because it loads no shapes of threads.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeAlias, TypeVar

import anyio
from anyio.abc import TaskGroup
from pydantic import ValidationError

from app_server import __version__
from app_server.client.connection import Receiver, ServerConnection
from app_server.client.failures import ServerEnded
from app_server.client.link import Connector
from app_server.client.plain_warnings import WARNINGS, plain_warning
from app_server_protocol.base import WireModel
from app_server_protocol.encoding import Json, JsonSerializable
from app_server_protocol.jsonrpc import INITIALIZE, INITIALIZED, Request
from app_server_protocol.method_table import ClientRequest
from app_server_protocol.parse import read
from app_server_protocol.rpc_errors import RpcError
from app_server_protocol.v2 import server as wire
from app_server_protocol.wire_fields import unknown_method

log = logging.getLogger(__name__)

P = TypeVar("P", bound=WireModel)
R = TypeVar("R", bound=JsonSerializable)
ReceiverT = TypeVar("ReceiverT", bound=Receiver)

STARTS_WITHIN = 60.0
"""Timeout of the server's answer to its first request, in seconds; the answer takes a fraction of one."""

CLOSES_WITHIN = 5.0
"""Timeout for a server to end after its input has ended, in seconds; then its connector ends it."""

METHOD_NOT_FOUND = -32601

TellWarning: TypeAlias = Callable[[str], object]
"""Callback for the text of a warning."""


class RequestClient:
    """A connected server, for requests. `info` is the server's information about itself."""

    def __init__(self, connection: ServerConnection, info: wire.InitializeResponse) -> None:
        """Programs call a function or method that connects instead."""
        self._connection, self.info = connection, info

    async def request(self, row: ClientRequest[P, R], params: P) -> R:
        """Call any method of the protocol, by its row in `app_server_protocol.v2`. Unset fields are not sent."""
        return await self._connection.request(row, params)

    async def request_raw(self, method: str, params: Json = None) -> Json:
        """Call any method by its name, with plain JSON."""
        return await self._connection.request_raw(method, params)

    async def pages(self, row: ClientRequest[P, R], params: P) -> AsyncIterator[R]:
        """Call a method that lists something, and yield its results page by page."""
        while True:
            page = await self.request(row, params)
            yield page
            cursor: str | None = getattr(page, "next_cursor", None)
            if cursor is None:
                return
            params = params.model_copy(update={"cursor": cursor})


class WarningReceiver:
    """Receiver of a connection without threads: it passes on warnings, and refuses requests of the server."""

    def __init__(self, tell: TellWarning) -> None:
        self._tell = tell

    def notified(self, method: str, params: Json) -> None:
        row = WARNINGS.get(method)
        if row is None:
            return
        try:
            text = plain_warning(read(row.params, params))
        except ValidationError:
            log.warning("the server sent a %s that this version does not know", method)
            return
        if text is not None:
            self._tell(text)

    def asked(self, request: Request, connection: ServerConnection) -> None:
        connection.refuse(request.id, RpcError(METHOD_NOT_FOUND, unknown_method(request.method)))

    def ended(self, error: ServerEnded) -> None:
        pass


@asynccontextmanager
async def request_client(connector: Connector, tell_warning: TellWarning) -> AsyncIterator[RequestClient]:
    """Connect to a server for requests."""
    opening = open_connection(connector, lambda _: WarningReceiver(tell_warning))
    async with opening as (connection, _, info):
        yield RequestClient(connection, info)


@asynccontextmanager
async def open_connection(
    connector: Connector,
    make_receiver: Callable[[TaskGroup], ReceiverT],
    client: wire.ClientInfo | None = None,
    *,
    answers_questions: bool = False,
    hooks: Json = None,
) -> AsyncIterator[tuple[ServerConnection, ReceiverT, wire.InitializeResponse]]:
    """Open a connection, which ends with the block, and send the first request.

    The receiver may start tasks in the group that it is made with. If the client does not answer questions, other
    clients answer them first. `hooks` are the callbacks that it announces.
    """
    failure: BaseException | None = None
    async with connector.open() as link, anyio.create_task_group() as group:
        receiver = make_receiver(group)
        connection = ServerConnection(link, receiver)
        group.start_soon(connection.read, name="reader")
        group.start_soon(connection.write, name="writer")
        try:
            yield connection, receiver, await _initialize(connection, client, answers_questions, hooks)
        except anyio.get_cancelled_exc_class():
            raise
        except BaseException as error:
            failure = error  # raised outside of the group, which would wrap it into an exception group
        finally:
            with anyio.move_on_after(CLOSES_WITHIN, shield=True):
                await connection.close()
            group.cancel_scope.cancel()
    if failure is not None:
        raise failure


async def _initialize(
    connection: ServerConnection, client: wire.ClientInfo | None, answers_questions: bool, hooks: Json
) -> wire.InitializeResponse:
    """Send the first request. It names the client, and makes wrong parameters errors."""
    info = client or wire.ClientInfo(name="app-server-client", version=__version__)
    extensions = {"parameters": "strict"}
    if not answers_questions:
        extensions["questions"] = "last"
    capabilities: dict[str, Json] = {"experimentalApi": True, "extensions": extensions}
    if hooks is not None:
        capabilities["hooks"] = hooks
    params: Json = {"clientInfo": info.to_value(), "capabilities": capabilities}
    with anyio.move_on_after(STARTS_WITHIN):
        response = read(wire.InitializeResponse, await connection.request_raw(INITIALIZE, params))
        connection.notify(INITIALIZED)
        return response
    raise ServerEnded(f"the server did not answer within {STARTS_WITHIN:g} s")
