"""MCP servers for clients: their tools and resources, calls of tools, restarts, logins.

A request that names a thread uses the thread's servers; any other request starts those of the configuration for as long
as it runs. A login goes through the user's browser and ends with `mcpServer/oauthLogin/completed`.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Final

from pydantic import ValidationError

from app_server.engine.auth.credentials import LoginOutcome
from app_server.engine.config.mcp_server_settings import McpHttpTransport, McpServerConfig
from app_server.engine.http.address import origin
from app_server.engine.mcp.mcp_requests import McpRequests
from app_server.engine.mcp.tool_catalog import ConnectionState, ServerStatus
from app_server.engine.support.engine_errors import AuthError
from app_server.server.apis.contexts import ConnectionContext
from app_server.server.apis.router import Route, route
from app_server.server.apis.v2.open_threads import find_open
from app_server.server.apis.v2.thread_notifier import to_client
from app_server.server.apis.v2.thread_settings import LOCAL
from app_server.server.apis.v2.v2_errors import page_by_position
from app_server_protocol import mcp as engine
from app_server_protocol.encoding import Json
from app_server_protocol.method_table import NoParams
from app_server_protocol.parse import read
from app_server_protocol.rpc_errors import internal_error, invalid_field, invalid_request
from app_server_protocol.v2 import mcp as wire
from app_server_protocol.values import replace

STATES: Final[Mapping[ConnectionState, wire.McpServerConnectionStatus]] = {
    ConnectionState.STARTING: "starting",
    ConnectionState.CONNECTED: "connected",
    ConnectionState.LOGIN_REQUIRED: "authenticationRequired",
    ConnectionState.FAILED: "failed",
    ConnectionState.DISABLED: "disabled",
}


def shown_server(status: ServerStatus, *, of_thread: bool) -> wire.McpServerStatus:
    """Return a server as clients are shown it; a connection that was made for this request only has no state of its
    own.
    """
    address = status.config.transport.address
    return wire.McpServerStatus(
        name=status.config.name,
        runtime_status=STATES[status.state] if of_thread else None,
        http_origin=None if address is None else origin(address),
        protocol_version=status.introduction.revision,
        server_info=_info(status.introduction.info),
        server_capabilities=status.introduction.capabilities,
        tools={tool.tool: read(wire.ListedTool, tool.definition.to_value()) for tool in status.tools},
        tools_error=status.error,
        resources=tuple(read(wire.Resource, each.to_value()) for each in status.resources),
        resource_templates=tuple(read(wire.ResourceTemplate, each.to_value()) for each in status.templates),
        auth_status=wire.McpAuthStatus[status.auth.name],
    )


def shown_result(result: engine.CallToolResult) -> wire.McpServerToolCallResponse:
    return wire.McpServerToolCallResponse(
        content=tuple(block.to_value() for block in result.content),
        structured_content=result.structured_content,
        is_error=result.is_error,
    )


def shown_content(content: engine.TextResourceContents | engine.BlobResourceContents) -> wire.ResourceContent:
    match content:
        case engine.TextResourceContents():
            return wire.TextResourceContent(uri=content.uri, mime_type=content.mime_type, text=content.text)
        case engine.BlobResourceContents():
            return wire.BlobResourceContent(uri=content.uri, mime_type=content.mime_type, blob=content.blob)


def _info(raw: Json) -> wire.McpServerInfo | None:
    try:
        return read(wire.McpServerInfo, raw)
    except ValidationError:
        return None


@asynccontextmanager
async def _servers(
    context: ConnectionContext, thread_id: str | None, names: Sequence[str]
) -> AsyncIterator[McpRequests]:
    """Yield the servers of the thread, or else the named servers of the configuration."""
    if thread_id is not None:
        yield find_open(context, thread_id).session.mcp
        return
    config = context.config.load()
    chosen = {name: config.mcp_servers[name] for name in names if name in config.mcp_servers}
    alone = replace(config, mcp_servers=MappingProxyType(chosen))
    async with context.engine.mcp_alone(alone, context.client.caller) as requests:
        yield requests


def _configured(context: ConnectionContext, thread_id: str | None) -> Mapping[str, McpServerConfig]:
    """Return the servers of the thread, or else those of the configuration."""
    if thread_id is None:
        return context.config.load().mcp_servers
    return find_open(context, thread_id).session.mcp.configs


def _is_elsewhere(environment_id: str | None) -> bool:
    """Return whether a request is about another environment than the server's own machine, where there are no
    servers.
    """
    return environment_id not in (None, LOCAL)


def _named(server: str, environment_id: str | None) -> str:
    """Return the name of a server for a message."""
    return server[:200] if environment_id is None else f"{server[:200]} (environment {environment_id[:200]})"


def _require_here(server: str, environment_id: str | None) -> None:
    """Raise RpcError for a server of another environment."""
    if _is_elsewhere(environment_id):
        raise internal_error(f"unknown MCP server '{_named(server, environment_id)}'", "mcp")


async def mcp_server_status_list(
    context: ConnectionContext, params: wire.ListMcpServerStatusParams
) -> wire.ListMcpServerStatusResponse:
    """List the servers by pages; only those of the page are started."""
    if params.environment_id is not None and (params.server_name is None or params.thread_id is None):
        raise invalid_request(
            "environmentId requires serverName and threadId", "environment", "environmentId"
        )
    if _is_elsewhere(params.environment_id):
        return wire.ListMcpServerStatusResponse(data=())
    configured = sorted(_configured(context, params.thread_id))
    names = [name for name in configured if params.server_name in (None, name)]
    page, next_cursor = page_by_position(names, params.cursor, params.limit)
    full = params.detail != "toolsAndAuthOnly"
    async with _servers(context, params.thread_id, page) as servers:
        found = await servers.statuses(page, with_resources=full)
    return wire.ListMcpServerStatusResponse(
        data=tuple(shown_server(each, of_thread=params.thread_id is not None) for each in found),
        next_cursor=next_cursor,
    )


async def mcp_server_tool_call(
    context: ConnectionContext, params: wire.McpServerToolCallParams
) -> wire.McpServerToolCallResponse:
    """Call a tool without asking for approval, because the client itself would be asked."""
    servers = find_open(context, params.thread_id).session.mcp
    _require_here(params.server, params.environment_id)
    return shown_result(
        await servers.call_directly(params.server, params.tool, params.arguments, params.meta)
    )


async def mcp_server_resource_read(
    context: ConnectionContext, params: wire.McpResourceReadParams
) -> wire.McpResourceReadResponse:
    _require_here(params.server, params.environment_id)
    async with _servers(context, params.thread_id, [params.server]) as servers:
        contents = await servers.read_directly(params.server, params.uri)
    return wire.McpResourceReadResponse(
        contents=tuple(shown_content(each) for each in contents), origin_call_id=params.origin_call_id
    )


async def config_mcp_server_reload(context: ConnectionContext, params: NoParams) -> None:
    """Reload the servers of all threads; of none if the settings of one thread cannot be read any more. Raises
    ConfigError.
    """
    live = context.conversations.all()
    configs = [context.config.load(each.session.facts.config.request) for each in live]
    for each, config in zip(live, configs, strict=True):
        each.session.reload_servers(config.mcp_servers)


LIMIT_SECONDS = 300.0
LONGEST_SECONDS = 3600.0
MOST_SCOPES: Final = 100
_SCOPE: Final = re.compile(r"[!#-\[\]-~]{1,200}")


async def mcp_server_oauth_login(
    context: ConnectionContext, params: wire.McpServerOauthLoginParams
) -> AsyncIterator[wire.McpServerOauthLoginResponse]:
    """Begin a login, which cancels a pending login at the same server; `account/login/cancel` cancels it by its
    `loginId`.
    """
    transport = _transport(context, params)
    seconds = _seconds(params.timeout_secs)
    _check_scopes(params.scopes)
    try:
        login = await context.accounts.open_mcp_login(params.name, transport, params.scopes)
    except AuthError as error:
        raise invalid_request(f"MCP server '{params.name}': {error}", "mcp_login") from error

    def ended(outcome: LoginOutcome) -> None:
        to_client(context).notify(
            wire.MCP_SERVER_OAUTH_LOGIN_COMPLETED,
            name=params.name,
            thread_id=params.thread_id,
            login_id=login.id,
            success=outcome.success,
            error=outcome.error,
        )

    yield wire.McpServerOauthLoginResponse(authorization_url=login.flow.auth_url, login_id=login.id)
    context.accounts.await_in_background(login, ended, seconds)


def _transport(context: ConnectionContext, params: wire.McpServerOauthLoginParams) -> McpHttpTransport:
    server = _configured(context, params.thread_id).get(params.name)
    if server is None or _is_elsewhere(params.environment_id):
        message = f"No MCP server named '{_named(params.name, params.environment_id)}' found."
        raise invalid_request(message, "mcp_server_not_found", "name")
    transport = server.transport
    if not isinstance(transport, McpHttpTransport):
        message = "OAuth login is only supported for streamable HTTP servers."
        raise invalid_request(message, "unsupported", "name")
    if transport.sends_token:
        message = f"`mcp_servers.{params.name}` names a token of its own, which counts more than a login"
        raise invalid_request(message, "unsupported", "name")
    return transport


def _seconds(wanted: int | None) -> float:
    if wanted is None:
        return LIMIT_SECONDS
    if not 1 <= wanted <= LONGEST_SECONDS:
        message = f"timeoutSecs must be between 1 and {LONGEST_SECONDS:.0f}, not {wanted}"
        raise invalid_field(message, "timeoutSecs")
    return float(wanted)


def _check_scopes(scopes: tuple[str, ...] | None) -> None:
    if scopes is not None and (len(scopes) > MOST_SCOPES or not all(map(_SCOPE.fullmatch, scopes))):
        message = f"scopes must be at most {MOST_SCOPES} words without spaces, quotes and backslashes"
        raise invalid_field(message, "scopes")


def routes(context: ConnectionContext) -> tuple[Route, ...]:
    return (
        route(wire.MCP_SERVER_STATUS_LIST, mcp_server_status_list, context),
        route(wire.MCP_SERVER_TOOL_CALL, mcp_server_tool_call, context),
        route(wire.MCP_SERVER_RESOURCE_READ, mcp_server_resource_read, context),
        route(wire.CONFIG_MCP_SERVER_RELOAD, config_mcp_server_reload, context),
        route(wire.MCP_SERVER_OAUTH_LOGIN, mcp_server_oauth_login, context),
    )
