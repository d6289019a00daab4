"""Routes of MCP servers."""

from __future__ import annotations

from app_server.apis.route import Route, route
from app_server.apis.services import ServerServices
from app_server.apis.v2.handlers import mcp_login, mcp_servers
from app_server.apis.v2.notify import ThreadNotifier
from protocol.v2 import host_methods as methods


def mcp_routes(services: ServerServices, notifier: ThreadNotifier) -> tuple[Route, ...]:
    context = mcp_servers.McpContext(services.config, services.conversations, services.engine.mcp_alone)
    accounts = services.accounts
    login = mcp_login.McpLoginContext(context, accounts.mcp_logins, accounts.logins, notifier)
    return (
        route(methods.MCP_SERVER_STATUS_LIST, mcp_servers.mcp_server_status_list, context),
        route(methods.MCP_SERVER_TOOL_CALL, mcp_servers.mcp_server_tool_call, context),
        route(methods.MCP_SERVER_RESOURCE_READ, mcp_servers.mcp_server_resource_read, context),
        route(methods.CONFIG_MCP_SERVER_RELOAD, mcp_servers.config_mcp_server_reload, context),
        route(methods.MCP_SERVER_OAUTH_LOGIN, mcp_login.mcp_server_oauth_login, login),
    )
