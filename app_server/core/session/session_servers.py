"""The MCP servers of one conversation: when they are started, and what clients learn of that."""

from __future__ import annotations

from collections.abc import Mapping

from anyio.abc import TaskGroup

from app_server.core.config.types import McpServerConfig
from app_server.core.mcp.mcp_manager import McpManager
from app_server.core.turn.outbox import Outbox
from protocol.engine.events import McpServersSettled
from protocol.events.notices import WarningEvent


class SessionServers:
    def __init__(self, manager: McpManager, outbox: Outbox) -> None:
        self.manager, self._outbox = manager, outbox
        self._group: TaskGroup | None = None

    def start(self, group: TaskGroup) -> None:
        """Start those of the configuration, in the task group of the session."""
        self._group = group
        if self.manager.configured:
            self._start(group)

    def stop(self) -> None:
        """The task group has ended, and the servers with it."""
        self._group = None

    def reload(self, servers: Mapping[str, McpServerConfig]) -> None:
        """End the servers and start these. Calls that run fail."""
        self.manager.reload(servers)
        if self._group is not None:
            self._start(self._group)

    def _start(self, group: TaskGroup) -> None:
        if not self.manager.started:
            group.start_soon(self.manager.run_servers, name="mcp")
        group.start_soon(self._report, name="mcp start")

    async def _report(self) -> None:
        manager, servers = self.manager, self.manager.servers
        await manager.ready()
        if manager.servers is not servers:
            return  # others were started meanwhile, and are reported when they are ready
        self._outbox.emit("", McpServersSettled(tuple(failure.message for failure in manager.failures())))
        for notice in manager.notices():
            self._outbox.emit("", WarningEvent(message=notice))
