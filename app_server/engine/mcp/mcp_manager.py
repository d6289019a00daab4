"""The MCP servers of one conversation: starts them in the background, ends them, and combines their tools.

The session owns the manager: `run_servers` is a task of its group, and cancelling that task ends every server. The
manager emits no events and does not know turns. If no server is enabled, the client modules are not loaded.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio

from app_server.engine.config.mcp_server_settings import McpServerConfig
from app_server.engine.mcp import mcp_requests, mcp_server, tool_catalog

if TYPE_CHECKING:
    from app_server.engine.mcp.mcp_errors import StartFailure
    from app_server.engine.mcp.mcp_requests import McpRequests
    from app_server.engine.mcp.mcp_server import McpServer
    from app_server.engine.mcp.runtime_interface import McpRuntime
    from app_server.engine.mcp.tool_catalog import McpTool


READY_GRACE_SECONDS = 2.0
"""Additional time beyond a server's startup timeout for its orderly end, in seconds."""


class McpManager:
    """The servers of one conversation."""

    def __init__(
        self,
        servers: Mapping[str, McpServerConfig],
        runtime: Callable[[], McpRuntime],
        reserved_names: Callable[[], Collection[str]] = tuple,
    ) -> None:
        """`runtime` is called only if a server is enabled. `reserved_names` returns the names of built-in tools, which
        servers' tools cannot take.
        """
        self.runtime, self._reserved_names = runtime, reserved_names
        self.revision = 0
        """Counter that increases whenever the tools may have changed."""
        self._use(servers)
        self._scope = anyio.CancelScope()
        self.started = False
        """Whether `run_servers` was called."""
        self._closing = False
        self._ended = anyio.Event()

    def _use(self, servers: Mapping[str, McpServerConfig]) -> None:
        self.configs = dict(sorted(servers.items()))
        enabled = {name: config for name, config in self.configs.items() if config.enabled}
        self.servers: dict[str, McpServer] = {}
        """Enabled servers, by name."""
        if enabled:
            make, runtime = mcp_server.McpServer, self.runtime()
            self.servers = {name: make(config, runtime) for name, config in enabled.items()}
        for server in self.servers.values():
            server.on_tools = self._forget_tools
        self._forget_tools()
        self._notices: tuple[str, ...] = ()

    def _forget_tools(self) -> None:
        self._tools: Mapping[str, McpTool] | None = None
        self.revision += 1

    @property
    def configured(self) -> bool:
        """Whether any server is enabled."""
        return bool(self.servers)

    @property
    def requests(self) -> McpRequests:
        """The requests that the servers accept."""
        return mcp_requests.McpRequests(self)

    async def run_servers(self) -> None:
        """Start every server at once and serve them until cancelled or closed. After `reload`, start the new
        servers.
        """
        self.started = True
        try:
            while not self._closing:
                with anyio.CancelScope() as self._scope:
                    async with anyio.create_task_group() as group:
                        for server in self.servers.values():
                            group.start_soon(server.run_server, name=f"mcp {server.config.name}")
                        await anyio.sleep_forever()
        finally:
            self._ended.set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[McpRequests]:
        """Run the servers until the block ends."""
        async with anyio.create_task_group() as group:
            group.start_soon(self.run_servers, name="mcp")
            try:
                yield self.requests
            finally:
                group.cancel_scope.cancel()

    def reload(self, servers: Mapping[str, McpServerConfig]) -> None:
        """End every server. The given servers are started once all processes have exited."""
        for server in self.servers.values():
            server.replaced()
        self._use(servers)
        self._scope.cancel()

    async def close(self) -> None:
        """End every server and wait for the exit of their processes. Only the owner of `run_servers` calls this."""
        self._closing = True
        self._scope.cancel()
        if self.started:
            await self._ended.wait()

    async def ready(self) -> None:
        """Wait until every server has started or failed to start, each within its own timeout."""
        limits = [server.config.startup_timeout_sec for server in self.servers.values()]
        with anyio.move_on_after(max(limits, default=0.0) + READY_GRACE_SECONDS):
            for server in self.servers.values():
                await server.settled.wait()

    def failures(self) -> tuple[StartFailure, ...]:
        """Return the failures of the servers that have failed to start so far."""
        return tuple(server.failure for server in self.servers.values() if server.failure is not None)

    def notices(self) -> tuple[str, ...]:
        """Return the messages for the user about omitted tools of the servers so far."""
        self.tools()
        return tuple(text for server in self.servers.values() for text in server.notices) + self._notices

    def tools(self) -> Mapping[str, McpTool]:
        """Return the model's tools of all servers that are ready, by qualified name, sorted."""
        if self._tools is not None:
            return self._tools
        offered = [tool for server in self.servers.values() for tool in server.tools]
        tools: Mapping[str, McpTool] = {}
        if offered:
            tools, self._notices = tool_catalog.model_tools(offered, frozenset(self._reserved_names()))
        if all(server.settled.is_set() for server in self.servers.values()):
            self._tools = tools
        return tools
