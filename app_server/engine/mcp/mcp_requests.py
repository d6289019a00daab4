"""Requests to the servers of a conversation, or to servers that are started for one request.

The requests are: calls of tools, resources, login states, and for clients the states and offers of the servers. This
module requests no approval and emits no events: `engine/tools/mcp_tools.py` does both for calls of the model.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Protocol

import anyio

from app_server.engine.config.mcp_server_settings import McpHttpTransport, McpServerConfig
from app_server.engine.mcp.mcp_client import entries
from app_server.engine.mcp.mcp_errors import MAX_RESOURCES, UNEXPECTED, McpFailure, tool_call_error
from app_server.engine.mcp.mcp_server import McpServer
from app_server.engine.mcp.mcp_transport import McpRequestFailed
from app_server.engine.mcp.results import (
    READ_RESOURCE,
    RESOURCES,
    TEMPLATES,
    Contents,
    Listed,
    McpCallOutcome,
    ResourceKind,
    list_output,
    parse_contents,
    parse_result,
    read_output,
)
from app_server.engine.mcp.runtime_interface import McpRuntime
from app_server.engine.mcp.tool_catalog import ConnectionState, McpTool, ServerStatus, allowed
from app_server.engine.support.worker_threads import run_in_thread
from app_server_protocol.encoding import Json
from app_server_protocol.engine.notices import McpToolsListed
from app_server_protocol.json_limits import nested_too_deeply
from app_server_protocol.mcp import CallToolResult, McpAuthStatus, Resource, ResourceTemplate
from app_server_protocol.values import replace

LOOK_SECONDS = 15.0
"""Timeout of a query of all servers, in seconds. A server that takes longer to start or to answer is shown as far as it
has come.
"""


class Servers(Protocol):
    """The servers of one conversation, as their manager keeps them."""

    configs: dict[str, McpServerConfig]
    servers: dict[str, McpServer]
    runtime: Callable[[], McpRuntime]

    def tools(self) -> Mapping[str, McpTool]: ...

    async def ready(self) -> None: ...


class McpRequests:
    """Requests to the servers of a manager. The model's requests return text for the model. A client's requests need no
    approval.
    """

    def __init__(self, manager: Servers) -> None:
        self._manager = manager

    @property
    def configs(self) -> Mapping[str, McpServerConfig]:
        return self._manager.configs

    # --- requests of the model
    async def call(self, name: str, arguments: Json) -> McpCallOutcome:
        """Call a tool by its qualified name. The outcome includes any error."""
        begun = anyio.current_time()
        tool = self._manager.tools().get(name)
        result: CallToolResult | None = None
        error: str | None = f"unsupported call: {name}"
        if tool is not None:
            try:
                result, error = await self._call(tool, arguments), None
            except McpRequestFailed as failed:
                error = tool_call_error(tool.server, tool.tool, failed.causes)
        return McpCallOutcome(result, error, anyio.current_time() - begun)

    async def list_entries(
        self, kind: ResourceKind[Listed], server: str | None = None, cursor: str | None = None
    ) -> str:
        """Return one page of a server's list, or all pages of every server. Blank texts count as missing. Raises
        McpFailure with text for the model.
        """
        server, cursor = (server or "").strip(), (cursor or "").strip()
        if not server:
            if cursor:
                raise McpFailure("cursor can only be used when a server is specified")
            every = await self.all_entries(kind)
            return list_output(kind, None, [(name, one) for name, found in every.items() for one in found])
        try:
            result = await self._running(server, kind.method).request(
                kind.method, {"cursor": cursor} if cursor else {}
            )
            raw = entries(kind.method, result, kind.key)
        except McpRequestFailed as error:
            raise McpFailure(f"{kind.method} failed: {kind.method} failed for `{server}`: {error}") from error
        following = result.get("nextCursor")
        found = [(server, one) for one in kind.parse(raw[:MAX_RESOURCES])]
        return list_output(kind, server, found, following if isinstance(following, str) else None)

    async def read_resource(self, server: str, uri: str) -> str:
        """Return the contents of a resource. Raises McpFailure with text for the model."""
        try:
            return read_output(server, uri, await _contents(self._running(server, READ_RESOURCE), uri))
        except McpRequestFailed as error:
            raise McpFailure(
                f"{READ_RESOURCE} failed: {READ_RESOURCE} failed for `{server}` ({uri}): {error}"
            ) from error

    # --- requests of a client
    async def call_directly(self, server: str, tool: str, arguments: Json, meta: Json) -> CallToolResult:
        """Return the result of a call as the server gave it, within bounds. Raises McpFailure."""
        failed = f"tool call failed for `{server}/{tool}`"
        if arguments is not None and not isinstance(arguments, dict):
            raise McpFailure(f"{failed}: MCP tool arguments must be a JSON object")
        if nested_too_deeply(arguments) or nested_too_deeply(meta):
            raise McpFailure(f"{failed}: the arguments are nested too deeply")
        chosen = await self._started(server)
        if not allowed(chosen.config, tool):
            raise McpFailure(f"tool '{tool[:200]}' is disabled for MCP server '{server}'")
        params: dict[str, Json] = {"name": tool, "arguments": arguments or {}}
        if meta is not None:
            params["_meta"] = meta
        try:
            result = await _result_of_call(chosen, params)
        except McpRequestFailed as error:
            raise McpFailure(f"{failed}: {error}") from error
        if result is None:
            raise McpFailure(f"{failed}: {UNEXPECTED}")
        return result

    async def read_directly(self, server: str, uri: str) -> tuple[Contents, ...]:
        """Return the contents of a resource, truncated. Raises McpFailure."""
        chosen = await self._started(server)
        try:
            return await _contents(chosen, uri)
        except McpRequestFailed as error:
            raise McpFailure(f"resources/read failed for `{server}`: {error}") from error

    async def snapshot(self) -> McpToolsListed:
        """Return tools, resources and login states of all servers."""
        await self._manager.ready()
        return McpToolsListed(
            tools={name: tool.definition for name, tool in self._manager.tools().items()},
            resources=await self.all_entries(RESOURCES),
            resource_templates=await self.all_entries(TEMPLATES),
            auth_statuses=self.auth_statuses(),
        )

    async def statuses(self, names: Collection[str], *, with_resources: bool) -> list[ServerStatus]:
        """Return the states of the servers with these names. Waits for servers that are starting."""
        asked = {name: server for name, server in self._manager.servers.items() if name in names}
        resources: dict[str, tuple[Resource, ...]] = {}
        templates: dict[str, tuple[ResourceTemplate, ...]] = {}
        with anyio.move_on_after(LOOK_SECONDS):
            await self._manager.ready()
            if with_resources:
                async with anyio.create_task_group() as group:
                    group.start_soon(_collect, RESOURCES, asked, resources)
                    group.start_soon(_collect, TEMPLATES, asked, templates)
        return [
            replace(
                _status(config, asked.get(name), self._auth_status(name, config)),
                resources=resources.get(name, ()),
                templates=templates.get(name, ()),
            )
            for name, config in self.configs.items()
            if name in names
        ]

    # --- requests of both
    async def all_entries(self, kind: ResourceKind[Listed]) -> dict[str, tuple[Listed, ...]]:
        """Return the lists of every server by name; a server that fails has none."""
        found: dict[str, tuple[Listed, ...]] = {}
        await _collect(kind, self._manager.servers, found)
        return dict(sorted(found.items()))

    def auth_statuses(self) -> dict[str, McpAuthStatus]:
        """Return for each configured server whether it requires a login."""
        return {name: self._auth_status(name, config) for name, config in self.configs.items()}

    async def _call(self, tool: McpTool, arguments: Json) -> CallToolResult:
        if arguments is not None and not isinstance(arguments, dict):
            raise McpRequestFailed(f"invalid type: {_kind(arguments)}, expected a map")
        if nested_too_deeply(arguments):
            raise McpRequestFailed("the arguments are nested too deeply")
        server = self._manager.servers[tool.server]
        params = {"name": tool.tool} | ({} if arguments is None else {"arguments": arguments})
        result = await _result_of_call(server, params)
        if result is None:
            raise McpRequestFailed(f"tools/call failed: {UNEXPECTED}")
        return result

    def _running(self, name: str, method: str) -> McpServer:
        server = self._manager.servers.get(name)
        if server is None or not server.running:
            raise McpFailure(f"{method} failed: unknown MCP server '{name}'")
        return server

    async def _started(self, name: str) -> McpServer:
        server = self._manager.servers.get(name)
        if server is None:
            raise McpFailure(f"unknown MCP server '{name[:200]}'")
        await server.settled.wait()
        if server.failure is not None:
            raise McpFailure(server.failure.message)
        return server

    def _auth_status(self, name: str, config: McpServerConfig) -> McpAuthStatus:
        if not isinstance(config.transport, McpHttpTransport):
            return McpAuthStatus.UNSUPPORTED
        server = self._manager.servers.get(name)
        if server is not None and server.failure is not None and server.failure.auth_required:
            return McpAuthStatus.NOT_LOGGED_IN
        if config.transport.sends_token:
            return McpAuthStatus.BEARER_TOKEN
        tokens = self._manager.runtime().tokens
        logged_in = tokens is not None and tokens().has_login(name, config.transport.url)
        return McpAuthStatus.O_AUTH if logged_in else McpAuthStatus.UNSUPPORTED


async def _result_of_call(server: McpServer, params: Json) -> CallToolResult | None:
    return await run_in_thread(parse_result, await server.request("tools/call", params))


async def _contents(server: McpServer, uri: str) -> tuple[Contents, ...]:
    result = await server.request(READ_RESOURCE, {"uri": uri})
    return parse_contents(entries(READ_RESOURCE, result, "contents"))


def _kind(value: Json) -> str:
    match value:
        case bool():
            return f"boolean `{str(value).lower()}`"
        case int():
            return f"integer `{value}`"
        case float():
            return f"floating point `{value}`"
        case str():
            return f"string {value[:40]!r}"
        case _:
            return "sequence"


async def _collect(
    kind: ResourceKind[Listed], servers: Mapping[str, McpServer], found: dict[str, tuple[Listed, ...]]
) -> None:
    """Add the list of each server that has one to `found`; a server that fails has none."""

    async def collect(name: str, server: McpServer) -> None:
        with suppress(McpRequestFailed):
            found[name] = kind.parse(await server.collect(kind.method, kind.key, MAX_RESOURCES))

    async with anyio.create_task_group() as group:
        for name, server in servers.items():
            if server.running and "resources" in server.capabilities:
                group.start_soon(collect, name, server)


def _status(config: McpServerConfig, server: McpServer | None, auth: McpAuthStatus) -> ServerStatus:
    if server is None:
        return ServerStatus(config, ConnectionState.DISABLED, auth)
    if not server.settled.is_set():
        return ServerStatus(config, ConnectionState.STARTING, auth, error="it has not started yet")
    if server.failure is not None:
        login = server.failure.auth_required
        state = ConnectionState.LOGIN_REQUIRED if login else ConnectionState.FAILED
        return ServerStatus(config, state, auth, error=server.failure.message)
    return ServerStatus(config, ConnectionState.CONNECTED, auth, server.introduction, server.tools)
