"""The MCP servers of one conversation: starts them in the background, ends them, and combines their tools.

The session owns the manager: `run_servers` is a task of its group, and cancelling that task ends every server. The
manager emits no events and knows no turns. Where no server is enabled, no client is loaded.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from importlib import import_module
from typing import TYPE_CHECKING

import anyio

from app_server.core.config.types import McpServerConfig
from app_server.core.lazy import Lazy

if TYPE_CHECKING:
    from app_server.core.mcp.faults import StartFailure
    from app_server.core.mcp.interfaces import McpRuntime
    from app_server.core.mcp.mcp_server import McpServer
    from app_server.core.mcp.offer import McpTool, ServerTool
    from app_server.core.mcp.requests import McpRequests

# Most conversations have no server.
_SERVER: Lazy[type[McpServer]] = Lazy(lambda: import_module("app_server.core.mcp.mcp_server").McpServer)
_REQUESTS: Lazy[type[McpRequests]] = Lazy(lambda: import_module("app_server.core.mcp.requests").McpRequests)
_MODEL_TOOLS: Lazy[
    Callable[[Iterable[ServerTool], Collection[str]], tuple[Mapping[str, McpTool], tuple[str, ...]]]
] = Lazy(lambda: import_module("app_server.core.mcp.offer").model_tools)

READY_GRACE_SECONDS = 2.0
"""Time beyond a server's startup limit for its orderly end."""


class McpManager:
    """The servers of one conversation."""

    def __init__(
        self,
        servers: Mapping[str, McpServerConfig],
        runtime: Callable[[], McpRuntime],
        reserved_names: Callable[[], Collection[str]] = tuple,
    ) -> None:
        """`runtime` is called where a server is enabled; `reserved_names` gives the names of built-in tools, which are
        not available for servers' tools.
        """
        self.runtime, self._reserved_names = runtime, reserved_names
        self.revision = 0
        """Another one when the tools may be others."""
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
        """Those that are enabled."""
        if enabled:
            make, runtime = _SERVER.get(), self.runtime()
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
        """Return what can be asked of the servers."""
        return _REQUESTS.get()(self)

    async def run_servers(self) -> None:
        """Start every server at once and serve them until cancelled or closed; others after `reload`."""
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
        """Run the servers for as long as the block."""
        async with anyio.create_task_group() as group:
            group.start_soon(self.run_servers, name="mcp")
            try:
                yield self.requests
            finally:
                group.cancel_scope.cancel()

    def reload(self, servers: Mapping[str, McpServerConfig]) -> None:
        """End every server; those that are given here are started once all processes have exited."""
        for server in self.servers.values():
            server.replaced()
        self._use(servers)
        self._scope.cancel()

    async def close(self) -> None:
        """End every server and wait for the exit of their processes. For the owner of `run_servers`."""
        self._closing = True
        self._scope.cancel()
        if self.started:
            await self._ended.wait()

    async def ready(self) -> None:
        """Wait until every server has started or failed to, each within its own limit."""
        limits = [server.config.startup_timeout_sec for server in self.servers.values()]
        with anyio.move_on_after(max(limits, default=0.0) + READY_GRACE_SECONDS):
            for server in self.servers.values():
                await server.settled.wait()

    def failures(self) -> tuple[StartFailure, ...]:
        """Return the failures of the servers that have not started, so far."""
        return tuple(server.failure for server in self.servers.values() if server.failure is not None)

    def notices(self) -> tuple[str, ...]:
        """Return other messages for the user about the servers, so far: omitted tools."""
        self.tools()
        return tuple(text for server in self.servers.values() for text in server.notices) + self._notices

    def tools(self) -> Mapping[str, McpTool]:
        """Return the tools for the model by qualified name, sorted: those of servers that are ready."""
        if self._tools is not None:
            return self._tools
        offered = [tool for server in self.servers.values() for tool in server.tools]
        tools: Mapping[str, McpTool] = {}
        if offered:
            tools, self._notices = _MODEL_TOOLS.get()(offered, frozenset(self._reserved_names()))
        if all(server.settled.is_set() for server in self.servers.values()):
            self._tools = tools
        return tools
