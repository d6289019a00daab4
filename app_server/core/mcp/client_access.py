"""What clients do with MCP servers themselves: see what they offer, call a tool, read a resource.

Works on the servers of a conversation as on those that are started for one request. Errors are McpFailures.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from enum import StrEnum
from typing import TYPE_CHECKING

import anyio
import msgspec
from msgspec import Struct

from app_server.core.config.types import McpServerConfig
from app_server.core.mcp.faults import MAX_RESOURCES, UNEXPECTED
from app_server.core.mcp.interfaces import McpFailure
from app_server.core.mcp.mcp_client import McpRequestFailed, ServerIntroduction, entries
from app_server.core.mcp.mcp_manager import McpManager
from app_server.core.mcp.offer import ServerTool, allowed
from app_server.core.mcp.resources import (
    LIST_RESOURCES,
    LIST_TEMPLATES,
    READ_RESOURCE,
    parse_contents,
    parse_resources,
    parse_templates,
)
from app_server.core.mcp.results import parse_result
from app_server.core.threads import run_in_thread
from protocol.base import Json
from protocol.mcp import (
    BlobResourceContents,
    CallToolResult,
    McpAuthStatus,
    Resource,
    ResourceTemplate,
    TextResourceContents,
)
from protocol.message_outline import nested_too_deeply

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
    resources: list[Json] = msgspec.field(default_factory=list)
    templates: list[Json] = msgspec.field(default_factory=list)


@asynccontextmanager
async def running(manager: McpManager) -> AsyncIterator[McpManager]:
    """The servers, started for as long as the block runs."""
    async with anyio.create_task_group() as group:
        group.start_soon(manager.run_servers, name="mcp")
        try:
            yield manager
        finally:
            group.cancel_scope.cancel()


async def server_statuses(
    manager: McpManager, names: Collection[str], *, with_resources: bool
) -> list[ServerStatus]:
    """Of those servers, by name. Waits for the ones that are starting."""
    offered = {name: _Offered() for name in names}
    with anyio.move_on_after(LOOK_SECONDS):
        await manager.ready()
        if with_resources:
            async with anyio.create_task_group() as group:
                for name, server in manager.servers.items():
                    if name in offered and server.running and "resources" in server.capabilities:
                        group.start_soon(_collect, server, offered[name])
    auth = manager.auth_statuses()
    return [
        _status(config, manager.servers.get(name), auth[name], offered[name])
        for name, config in manager.configs.items()
        if name in offered
    ]


async def call_tool(
    manager: McpManager, server: str, tool: str, arguments: Json, meta: Json
) -> CallToolResult:
    """The result as the server gave it, within bounds."""
    if arguments is not None and not isinstance(arguments, dict):
        raise McpFailure(f"tool call failed for `{server}/{tool}`: MCP tool arguments must be a JSON object")
    if nested_too_deeply(arguments) or nested_too_deeply(meta):
        raise McpFailure(f"tool call failed for `{server}/{tool}`: the arguments are nested too deeply")
    chosen = await _started(manager, server)
    if not allowed(chosen.config, tool):
        raise McpFailure(f"tool '{tool[:200]}' is disabled for MCP server '{server}'")
    params: dict[str, Json] = {"name": tool, "arguments": arguments or {}}
    if meta is not None:
        params["_meta"] = meta
    try:
        raw = await chosen.request("tools/call", params)
    except McpRequestFailed as error:
        raise McpFailure(f"tool call failed for `{server}/{tool}`: {error}") from error
    result = await run_in_thread(parse_result, raw)
    if result is None:
        raise McpFailure(f"tool call failed for `{server}/{tool}`: {UNEXPECTED}")
    return result


async def read_resource(
    manager: McpManager, server: str, uri: str
) -> tuple[TextResourceContents | BlobResourceContents, ...]:
    chosen = await _started(manager, server)
    try:
        result = await chosen.request(READ_RESOURCE, {"uri": uri})
        return parse_contents(entries(READ_RESOURCE, result, "contents"))
    except McpRequestFailed as error:
        raise McpFailure(f"resources/read failed for `{server}`: {error}") from error


async def _started(manager: McpManager, name: str) -> McpServer:
    server = manager.servers.get(name)
    if server is None:
        raise McpFailure(f"unknown MCP server '{name[:200]}'")
    await server.settled.wait()
    if server.failure is not None:
        raise McpFailure(server.failure.message)
    return server


async def _collect(server: McpServer, offered: _Offered) -> None:
    """What it does not answer is left out."""
    for method, key, found in (
        (LIST_RESOURCES, "resources", offered.resources),
        (LIST_TEMPLATES, "resourceTemplates", offered.templates),
    ):
        try:
            found += await server.collect(method, key, MAX_RESOURCES)
        except McpRequestFailed:
            continue


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
        resources=parse_resources(offered.resources),
        templates=parse_templates(offered.templates),
    )
