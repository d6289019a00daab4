"""`AppServer`: one server with its threads, in a process of its own or behind any other connector."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypedDict, TypeVar, Unpack

import anyio

from app_server import __version__
from app_server.client.answering import ApprovalHandler, RequestAnswerer
from app_server.client.connection import ServerConnection
from app_server.client.event_stream import EventQueue, EventSubscription
from app_server.client.events import ServerEvent
from app_server.client.failures import ServerEnded
from app_server.client.feeds import OnWarning, ServerFeeds, log_warning
from app_server.client.link import OWN_COMMAND, Connector, SubprocessConnector, shared_server
from app_server.client.options import ForkOptions, ListOptions, OpenOptions, StartOptions, parameters
from app_server.client.thread_handle import ThreadHandle, open_thread
from app_server_protocol.base import WireModel
from app_server_protocol.encoding import Json, JsonSerializable
from app_server_protocol.jsonrpc import INITIALIZE, INITIALIZED
from app_server_protocol.method_table import ClientRequest
from app_server_protocol.parse import read
from app_server_protocol.v2 import server as wire
from app_server_protocol.v2 import thread_open
from app_server_protocol.v2.models import MODEL_LIST, ListedModel, ModelListParams
from app_server_protocol.v2.thread import Thread
from app_server_protocol.v2.thread_store import THREAD_LIST, ThreadListParams

P = TypeVar("P", bound=WireModel)
R = TypeVar("R", bound=JsonSerializable)


class ConnectOptions(TypedDict, total=False):
    """Options of a connection: the identity of the client, and its handlers."""

    on_approval: ApprovalHandler | None
    """Handler of the server's requests, for threads without a handler of their own. Without it they are declined."""
    on_warning: OnWarning
    """Callback for warnings that no stream receives (a misspelt setting, an MCP server that does not start, a home that
    cannot be written). Without it they are logged.
    """
    client: wire.ClientInfo | None


STARTS_WITHIN = 60.0
"""Timeout of the server's answer to its first request, in seconds; the answer takes a fraction of one."""

CLOSES_WITHIN = 5.0
"""Timeout for a server to end after its input has ended, in seconds; then its connector ends it."""


class AppServer:
    """A connected server. `info` is the server's information about itself."""

    def __init__(
        self, connection: ServerConnection, feeds: ServerFeeds, info: wire.InitializeResponse
    ) -> None:
        """Programs call `spawn` or `connect` instead."""
        self._connection, self._feeds, self.info = connection, feeds, info

    # --- connecting
    @classmethod
    @asynccontextmanager
    async def spawn(
        cls,
        command: Sequence[str] = OWN_COMMAND,
        *,
        environment: Mapping[str, str] | None = None,
        cwd: Path | str | None = None,
        on_stderr: Callable[[str], None] | None = None,
        on_exit: Callable[[int], None] | None = None,
        **options: Unpack[ConnectOptions],
    ) -> AsyncIterator[AppServer]:
        """Start a server in a process of its own, which ends with the block. Without a command it is the server of this
        installation. If `environment` is None, the server gets the environment of this process. `on_stderr` receives
        every line that the server logs, `on_exit` its exit status. Raises ServerEnded if the server cannot be started.
        """
        connector = SubprocessConnector(
            command=command, environment=environment, cwd=cwd, on_stderr=on_stderr, on_exit=on_exit
        )
        async with cls.connect(connector, **options) as server:
            yield server

    @classmethod
    @asynccontextmanager
    async def connect(
        cls, connector: Connector | Path | str, **options: Unpack[ConnectOptions]
    ) -> AsyncIterator[AppServer]:
        """Connect to a server through any connector. `app_server.in_process.InProcessConnector` runs one in this
        process, `shared_server` connects to the one that all of the user's clients share. A path is that of a shared
        server's socket.
        """
        if isinstance(connector, Path | str):
            connector = shared_server(connector)
        failure: BaseException | None = None
        async with connector.open() as link, anyio.create_task_group() as group:
            answerer = RequestAnswerer(group)
            feeds = ServerFeeds(answerer, options.get("on_approval"), options.get("on_warning", log_warning))
            connection = ServerConnection(link, feeds)
            group.start_soon(connection.read, name="reader")
            group.start_soon(connection.write, name="writer")
            try:
                yield cls(connection, feeds, await _initialize(connection, options))
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

    # --- threads
    async def start_thread(
        self, *, on_approval: ApprovalHandler | None = None, **options: Unpack[StartOptions]
    ) -> ThreadHandle:
        """Start a new thread. Settings that are not given come from the server's configuration."""
        params = parameters(thread_open.ThreadStartParams, StartOptions, options)
        return await open_thread(self._connection, self._feeds, thread_open.THREAD_START, params, on_approval)

    async def resume_thread(
        self,
        thread_id: str,
        *,
        on_approval: ApprovalHandler | None = None,
        turns: bool = False,
        **options: Unpack[OpenOptions],
    ) -> ThreadHandle:
        """Resume a thread, stored or open. With `turns`, `handle.opened.thread.turns` has its history.

        The server repeats requests that are still open.
        """
        known = {"thread_id": thread_id, "exclude_turns": not turns}
        params = parameters(thread_open.ThreadResumeParams, OpenOptions, options, **known)
        return await open_thread(
            self._connection, self._feeds, thread_open.THREAD_RESUME, params, on_approval
        )

    async def fork_thread(
        self, thread_id: str, *, on_approval: ApprovalHandler | None = None, **options: Unpack[ForkOptions]
    ) -> ThreadHandle:
        """Open a thread that begins as a copy of another one, stored or open."""
        known = {"thread_id": thread_id, "exclude_turns": True}
        params = parameters(thread_open.ThreadForkParams, ForkOptions, options, **known)
        return await open_thread(self._connection, self._feeds, thread_open.THREAD_FORK, params, on_approval)

    async def threads(self, **options: Unpack[ListOptions]) -> AsyncIterator[Thread]:
        """Yield stored threads, the newest first by default, fetched page by page."""
        params = parameters(ThreadListParams, ListOptions, options)
        while True:
            page = await self._connection.request(THREAD_LIST, params)
            for thread in page.data:
                yield thread
            if page.next_cursor is None:
                return
            params = params.model_copy(update={"cursor": page.next_cursor})

    # --- everything else
    async def models(self, *, provider: str | None = None, hidden: bool = False) -> tuple[ListedModel, ...]:
        """Return the models that can be chosen."""
        found: list[ListedModel] = []
        params = ModelListParams(model_provider=provider, include_hidden=hidden)
        while True:
            page = await self._connection.request(MODEL_LIST, params)
            found += page.data
            if page.next_cursor is None:
                return tuple(found)
            params = params.model_copy(update={"cursor": page.next_cursor})

    def events(self) -> EventSubscription[ServerEvent]:
        """Subscribe to all notifications from now on: of every thread, warnings, the account, skills, watched files."""
        queue = EventQueue()
        self._feeds.subscribe(queue)
        return EventSubscription(queue, self._feeds.unsubscribe)

    async def request(self, row: ClientRequest[P, R], params: P) -> R:
        """Call any method of the protocol, by its row in `app_server_protocol.v2`. Unset fields are not sent."""
        return await self._connection.request(row, params)

    async def request_raw(self, method: str, params: Json = None) -> Json:
        """Call any method by its name, with plain JSON."""
        return await self._connection.request_raw(method, params)


async def _initialize(connection: ServerConnection, options: ConnectOptions) -> wire.InitializeResponse:
    """Send the first request. It names the client, and makes wrong parameters errors. If there is no approval handler,
    it says that other clients answer questions first.
    """
    info = options.get("client") or wire.ClientInfo(name="app-server-client", version=__version__)
    extensions = {"parameters": "strict"}
    if options.get("on_approval") is None:
        extensions["questions"] = "last"
    capabilities: Json = {"experimentalApi": True, "extensions": extensions}
    params: Json = {"clientInfo": info.to_value(), "capabilities": capabilities}
    with anyio.move_on_after(STARTS_WITHIN):
        response = read(wire.InitializeResponse, await connection.request_raw(INITIALIZE, params))
        connection.notify(INITIALIZED)
        return response
    raise ServerEnded(f"the server did not answer within {STARTS_WITHIN:g} s")
