"""One configured server in one conversation: started once, restarted a limited number of times in a row.

A server that failed to start is not tried again. After a server ended, the next call restarts it. A restart does not
change its tools for the model. They change if the server notifies that it offers others, and that is a notice for the
user. If a server refuses a call because it has forgotten the session, the call is repeated in a new session: the server
has not processed it.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Collection
from contextlib import AbstractAsyncContextManager

import anyio

from app_server.engine.config.mcp_server_settings import McpHttpTransport, McpServerConfig, McpStdioTransport
from app_server.engine.mcp import mcp_errors, streamable_http
from app_server.engine.mcp.mcp_client import McpClient
from app_server.engine.mcp.mcp_transport import McpRequestFailed, McpSessionLost, McpTransport
from app_server.engine.mcp.rpc_messages import METHOD_NOT_FOUND
from app_server.engine.mcp.runtime_interface import McpRuntime
from app_server.engine.mcp.stdio_transport import open_stdio
from app_server.engine.mcp.tool_catalog import SERVER_NAME, ServerIntroduction, ServerTool, server_tools
from app_server_protocol.encoding import Json
from app_server_protocol.engine.events import McpServerState, McpServerStateChanged
from app_server_protocol.values import replace

log = logging.getLogger(__name__)


class McpServer:
    """One server. `run_server` must run for its lifetime; the other methods may be called before and during it."""

    def __init__(self, config: McpServerConfig, runtime: McpRuntime) -> None:
        self.config = config
        self.settled = anyio.Event()
        """Event that is set once the server has started or failed to start."""
        self.failure: mcp_errors.StartFailure | None = None
        self.tools: tuple[ServerTool, ...] = ()
        self.notices: tuple[str, ...] = ()
        self.introduction = ServerIntroduction()
        self._runtime = runtime
        self._client: McpClient | None = None
        self._was_modern = False
        """Whether the last connection was one of the stateless era, in which a restart then begins."""
        self._restarts = mcp_errors.RESTARTS
        """Number of restarts left until the server answers again."""
        self._wanted = anyio.Event()
        self._changed, self._listed = anyio.Event(), anyio.Event()
        """Two events. The first is set when the server notifies that its tools have changed. The second is set while
        the known list of tools is current.
        """
        self._listed.set()
        self.on_tools: Callable[[], None] = lambda: None
        """Callback for when the tools have changed."""

    @property
    def capabilities(self) -> Collection[str]:
        """The names of the capabilities that the server declares."""
        return self.introduction.declared

    @property
    def running(self) -> bool:
        return self.settled.is_set() and self.failure is None

    async def run_server(self) -> None:
        """Start the server and serve it until cancelled, or until no restart is left."""
        self._report(McpServerState.STARTING)
        try:
            await self._run_connection(first=True)
            while self.failure is None:
                log.warning("MCP server %s has ended", self.config.name)
                await self._wanted.wait()
                self._wanted = anyio.Event()
                await self._run_connection(first=False)
        finally:
            self._client = None
            self.settled.set()

    def replaced(self) -> None:
        """Report that another server replaces this one, if this one has not started yet."""
        if not self.settled.is_set():
            self._report(McpServerState.CANCELLED)
            self._runtime = replace(self._runtime, on_state=None)

    async def request(self, method: str, params: Json) -> Json:
        """Return the result of one request, within the configured timeout. Raises McpRequestFailed."""
        seconds = self.config.tool_timeout_sec
        client = await self._live_client(method)
        try:
            result = await client.request(method, params, seconds)
        except McpSessionLost:
            await client.closed.wait()
            result = await (await self._live_client(method)).request(method, params, seconds)
        self._restarts = mcp_errors.RESTARTS
        with anyio.move_on_after(mcp_errors.REFRESH_SECONDS):
            await self._listed.wait()
        return result

    async def collect(self, method: str, key: str, limit: int) -> list[Json]:
        client = await self._live_client(method)
        return await client.collect(method, key, limit, self.config.tool_timeout_sec)

    async def _live_client(self, method: str) -> McpClient:
        dead = self._client is None or self._client.closed.is_set()
        if dead and self.running and self._restarts > 0:
            self._restarts -= 1
            self.settled = anyio.Event()
            self._wanted.set()
        await self.settled.wait()
        if self._client is None:
            raise McpRequestFailed(f"{method} failed: {mcp_errors.TRANSPORT_CLOSED}")
        return self._client

    async def _run_connection(self, *, first: bool) -> None:
        """Open one connection and serve it until it closes."""
        client: McpClient | None = None
        try:
            async with _open(self.config, self._runtime) as link, anyio.create_task_group() as group:
                client = McpClient(
                    self.config.name,
                    link,
                    self._runtime.version,
                    self._runtime.elicit,
                    self._roots(),
                    self._announced,
                )
                group.start_soon(client.serve)
                reason = await self._start(client, first=first)
                await self._settle(client if reason is None else None, reason, first=first)
                if reason is None:
                    group.start_soon(self._refresh, client)
                    group.start_soon(client.listen)
                    await client.closed.wait()
                group.cancel_scope.cancel()
        except (
            mcp_errors.McpFailure,
            OSError,
            ValueError,
        ) as error:  # on opening: a missing program, a missing token, a NUL byte
            await self._settle(None, _reason(error), first=first)
        finally:
            if self._client is client:
                self._client = None
            self._listed.set()

    def _announced(self) -> None:
        self._changed.set()
        if self.settled.is_set():
            self._listed = anyio.Event()

    async def _refresh(self, client: McpClient) -> None:
        """List the tools again whenever the server notifies that they have changed."""
        while True:
            await self._changed.wait()
            self._changed = anyio.Event()
            try:
                with anyio.fail_after(self.config.startup_timeout_sec):
                    await self._list_tools(client)
            except (mcp_errors.McpFailure, TimeoutError) as error:
                log.warning("MCP server %s does not list its new tools: %s", self.config.name, error)
            else:
                self.on_tools()
            if not self._changed.is_set():
                self._listed.set()

    async def _list_tools(self, client: McpClient) -> None:
        listed = await _listed_tools(client)
        mirrors = client.is_modern and isinstance(self.config.transport, McpHttpTransport)
        self.tools, self.notices = server_tools(self.config, listed, mirrors=mirrors)
        client.use_tools(self.tools)

    def _discovers_first(self) -> bool:
        """Return whether a connection begins with `server/discover`: the last one spoke the new era, or the feature
        says so of servers elsewhere.
        """
        return self._was_modern or (self.config.transport.IS_REMOTE and self._runtime.discovers_first)

    def _roots(self) -> tuple[str, ...]:
        """Return the folders that are revealed to the server as roots: none if the server runs elsewhere."""
        return () if self.config.transport.IS_REMOTE else (self._runtime.cwd,)

    async def _start(self, client: McpClient, *, first: bool) -> str | None:
        """Perform the handshake and list the tools, within the startup timeout. Return the reason if that fails."""
        with anyio.move_on_after(self.config.startup_timeout_sec):
            try:
                await client.open(discover_first=self._discovers_first())
                self._was_modern = client.is_modern
                if first:
                    self.introduction = client.introduction
                    await self._list_tools(client)
                else:
                    client.use_tools(self.tools)
            except mcp_errors.McpFailure as error:
                return str(error)
            return None
        refusal = client.refusal
        return mcp_errors.TIMED_OUT_HANDSHAKING if refusal is None else mcp_errors.HANDSHAKE + refusal

    async def _settle(self, client: McpClient | None, reason: str | None, *, first: bool) -> None:
        self._client = client
        if reason is not None and first:
            self.failure = mcp_errors.start_failure(self.config, reason)
            self.tools = ()
        elif reason is not None:
            log.warning("MCP server %s could not be started again: %s", self.config.name, reason)
        self.settled.set()
        if first:
            self._report(McpServerState.READY if self.failure is None else McpServerState.FAILED)

    def _report(self, state: McpServerState) -> None:
        failure, tell = self.failure, self._runtime.on_state
        if tell is None:
            return
        error = None if failure is None else failure.message
        login = failure is not None and failure.auth_required
        revision = self.introduction.revision
        tell(McpServerStateChanged(self.config.name, state, error, login_required=login, revision=revision))


async def _listed_tools(client: McpClient) -> list[Json]:
    # The limit is higher than that for kept tools, so that the configured filters apply to all tools of a large server.
    try:
        return await client.collect("tools/list", "tools", 10 * mcp_errors.MAX_TOOLS_PER_SERVER)
    except McpRequestFailed as error:
        if error.code == METHOD_NOT_FOUND:
            return []
        raise


OpenHttp = Callable[[str, McpHttpTransport, McpRuntime], AbstractAsyncContextManager[McpTransport]]


def _open(config: McpServerConfig, runtime: McpRuntime) -> AbstractAsyncContextManager[McpTransport]:
    if not SERVER_NAME.fullmatch(config.name):
        raise mcp_errors.McpFailure(
            f"invalid server name '{config.name}': must match pattern {SERVER_NAME.pattern}"
        )
    match config.transport:
        case McpStdioTransport() as stdio:
            return open_stdio(config.name, stdio, runtime)
        case McpHttpTransport() as http:
            return streamable_http.open_http(config.name, http, runtime)


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        code = error.errno or errno.EIO
        return f"{os.strerror(code)} (os error {code})"
    if isinstance(error, mcp_errors.McpFailure):
        return str(error)
    return "its table holds a value that no program can be given"
