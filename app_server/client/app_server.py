"""`AppServer`: one server with its threads, in a process of its own or behind any other connector."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypedDict, Unpack

from anyio.abc import TaskGroup

from app_server.client.answering import ApprovalHandler, RequestAnswerer
from app_server.client.connection import ServerConnection
from app_server.client.event_stream import EventQueue, EventSubscription
from app_server.client.events import ServerEvent
from app_server.client.feeds import OnWarning, ServerFeeds, log_warning
from app_server.client.hook_callbacks import HookAnswerer, Hooks
from app_server.client.link import OWN_COMMAND, Connector, SubprocessConnector, shared_server
from app_server.client.options import ForkOptions, ListOptions, OpenOptions, StartOptions, parameters
from app_server.client.request_client import RequestClient, open_connection
from app_server.client.thread_handle import ThreadHandle, open_thread
from app_server_protocol.v2 import server as wire
from app_server_protocol.v2 import thread_open
from app_server_protocol.v2.models import MODEL_LIST, ListedModel, ModelListParams
from app_server_protocol.v2.thread import Thread
from app_server_protocol.v2.thread_store import THREAD_LIST, ThreadListParams


class ConnectOptions(TypedDict, total=False):
    """Options of a connection: the identity of the client, and its handlers."""

    on_approval: ApprovalHandler | None
    """Handler of the server's requests, for threads without a handler of their own. Without it they are declined."""
    on_warning: OnWarning
    """Callback for warnings that no stream receives (a misspelt setting, an MCP server that does not start, a home that
    cannot be written). Without it they are logged.
    """
    client: wire.ClientInfo | None
    hooks: Hooks | None
    """Functions that the server asks about events of the threads of this connection."""


class AppServer(RequestClient):
    """A connected server, with its threads. `info` is the server's information about itself."""

    def __init__(
        self, connection: ServerConnection, feeds: ServerFeeds, info: wire.InitializeResponse
    ) -> None:
        """Programs call `spawn` or `connect` instead."""
        super().__init__(connection, info)
        self._feeds = feeds

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
        on_approval, hooks = options.get("on_approval"), options.get("hooks")

        def make_feeds(group: TaskGroup) -> ServerFeeds:
            on_warning = options.get("on_warning", log_warning)
            answerer = None if hooks is None else HookAnswerer(hooks, group)
            return ServerFeeds(RequestAnswerer(group), on_approval, on_warning, answerer)

        opening = open_connection(
            connector,
            make_feeds,
            options.get("client"),
            answers_questions=on_approval is not None,
            hooks=None if hooks is None else hooks.announcement(),
        )
        async with opening as (connection, feeds, info):
            yield cls(connection, feeds, info)

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
        async for page in self.pages(THREAD_LIST, params):
            for thread in page.data:
                yield thread

    # --- everything else
    async def models(self, *, provider: str | None = None, hidden: bool = False) -> tuple[ListedModel, ...]:
        """Return the models that can be chosen."""
        params = ModelListParams(model_provider=provider, include_hidden=hidden)
        return tuple([model async for page in self.pages(MODEL_LIST, params) for model in page.data])

    def events(self) -> EventSubscription[ServerEvent]:
        """Subscribe to all notifications from now on: of every thread, warnings, the account, skills, watched files."""
        queue = EventQueue()
        self._feeds.subscribe(queue)
        return EventSubscription(queue, self._feeds.unsubscribe)
