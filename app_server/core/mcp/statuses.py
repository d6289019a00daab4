"""What clients are shown of MCP servers: their states, and what they offer.

Works on the servers of a conversation as on those that are started for one request.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from enum import StrEnum
from typing import TYPE_CHECKING

import anyio
from msgspec import Struct

from app_server.core.config.types import McpServerConfig
from app_server.core.mcp.faults import MAX_RESOURCES
from app_server.core.mcp.mcp_client import McpRequestFailed, ServerIntroduction
from app_server.core.mcp.mcp_manager import McpManager
from app_server.core.mcp.offer import ServerTool
from app_server.core.mcp.resources import RESOURCES, TEMPLATES, Listed, ResourceKind
from protocol.mcp import McpAuthStatus, Resource, ResourceTemplate

if TYPE_CHECKING:
    from app_server.core.mcp.mcp_server import McpServer

LOOK_SECONDS = 15.0
"""For looking at all servers: one that takes longer to start or to answer is shown as far as it has come."""


class ConnectionState(StrEnum):
    STARTING = "starting"
    CONNECTED = "connected"
    LOGIN_REQUIRED = "login_required"
    FAILED = "failed"
    DISABLED = "disabled"


class ServerStatus(Struct, frozen=True):
    """One configured server, and what it offers as far as it has said."""

    config: McpServerConfig
    state: ConnectionState
    auth: McpAuthStatus
    introduction: ServerIntroduction = ServerIntroduction()
    tools: tuple[ServerTool, ...] = ()
    error: str | None = None
    resources: tuple[Resource, ...] = ()
    templates: tuple[ResourceTemplate, ...] = ()


class _Offered(Struct):
    resources: tuple[Resource, ...] = ()
    templates: tuple[ResourceTemplate, ...] = ()

    async def collect(self, server: McpServer) -> None:
        """Ask the server; what it does not answer is left out."""
        self.resources = await _entries(server, RESOURCES)
        self.templates = await _entries(server, TEMPLATES)


@asynccontextmanager
async def running(manager: McpManager) -> AsyncIterator[McpManager]:
    """Start the servers for as long as the block runs."""
    async with anyio.create_task_group() as group:
        group.start_soon(manager.run_servers, name="mcp")
        try:
            yield manager
        finally:
            group.cancel_scope.cancel()


async def server_statuses(
    manager: McpManager, names: Collection[str], *, with_resources: bool
) -> list[ServerStatus]:
    """Return the states of the servers with these names. Waits for the ones that are starting."""
    offered = {name: _Offered() for name in names}
    with anyio.move_on_after(LOOK_SECONDS):
        await manager.ready()
        if with_resources:
            async with anyio.create_task_group() as group:
                for name, server in manager.servers.items():
                    if name in offered and server.running and "resources" in server.capabilities:
                        group.start_soon(offered[name].collect, server)
    auth = manager.requests.auth_statuses()
    return [
        _status(config, manager.servers.get(name), auth[name], offered[name])
        for name, config in manager.configs.items()
        if name in offered
    ]


async def _entries(server: McpServer, kind: ResourceKind[Listed]) -> tuple[Listed, ...]:
    try:
        return kind.parse(await server.collect(kind.method, kind.key, MAX_RESOURCES))
    except McpRequestFailed:
        return ()


def _status(
    config: McpServerConfig, server: McpServer | None, auth: McpAuthStatus, offered: _Offered
) -> ServerStatus:
    if server is None:
        return ServerStatus(config, ConnectionState.DISABLED, auth)
    if not server.settled.is_set():
        return ServerStatus(config, ConnectionState.STARTING, auth, error="it has not started yet")
    if server.failure is not None:
        login = server.failure.auth_required
        state = ConnectionState.LOGIN_REQUIRED if login else ConnectionState.FAILED
        return ServerStatus(config, state, auth, error=server.failure.message)
    return ServerStatus(
        config,
        ConnectionState.CONNECTED,
        auth,
        server.introduction,
        server.tools,
        resources=offered.resources,
        templates=offered.templates,
    )
