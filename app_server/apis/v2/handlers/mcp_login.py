"""`mcpServer/oauth/login`: a login at an MCP server through the user's browser. It ends with
`mcpServer/oauthLogin/completed`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from app_server.apis.logins import Logins
from app_server.apis.result import HandlerResult
from app_server.apis.v2.handlers.mcp_servers import McpContext
from app_server.apis.v2.notify import ThreadNotifier
from app_server.core.auth.login_outcome import LoginOutcome
from app_server.core.config.types import McpHttpTransport
from app_server.core.errors import AuthError
from app_server.core.lazy import Lazy
from app_server.core.mcp.launch_env import sends_token
from app_server.rpc.errors import invalid_request
from protocol.records import dataclass
from protocol.v2.mcp import (
    McpServerOauthLoginCompletedNotification,
    McpServerOauthLoginParams,
    McpServerOauthLoginResponse,
)
from protocol.v2.notifications import MCP_SERVER_OAUTH_LOGIN_COMPLETED

if TYPE_CHECKING:
    from app_server.core.auth.mcp_login import McpLogins

LIMIT_SECONDS = 300.0
LONGEST_SECONDS = 3600.0
MOST_SCOPES: Final = 100
_SCOPE: Final = re.compile(r"[!#-\[\]-~]{1,200}")


@dataclass(frozen=True, slots=True)
class McpLoginContext:
    servers: McpContext
    mcp_logins: Lazy[McpLogins]
    logins: Logins
    notifier: ThreadNotifier


async def mcp_server_oauth_login(
    context: McpLoginContext, params: McpServerOauthLoginParams
) -> HandlerResult[McpServerOauthLoginResponse]:
    """A pending login at the same server is cancelled; `account/login/cancel` cancels this one by its `loginId`."""
    transport = _transport(context.servers, params)
    seconds = _seconds(params.timeout_secs)
    _check_scopes(params.scopes)
    purpose = f"mcp server {params.name}"
    context.logins.end(purpose)
    try:
        flow = await context.mcp_logins.get().open_login(params.name, transport.url, params.scopes)
    except AuthError as error:
        raise invalid_request(f"MCP server '{params.name}': {error}", "mcp_login") from error
    login = context.logins.add(flow, purpose)

    def ended(outcome: LoginOutcome) -> None:
        completed = McpServerOauthLoginCompletedNotification(
            name=params.name,
            thread_id=params.thread_id,
            login_id=login.id,
            success=outcome.success,
            error=outcome.error,
        )
        context.notifier.notify(MCP_SERVER_OAUTH_LOGIN_COMPLETED, completed)

    async def wait_for_browser() -> None:
        context.logins.await_in_background(login, ended, seconds)

    started = McpServerOauthLoginResponse(authorization_url=flow.auth_url, login_id=login.id)
    return HandlerResult(started, wait_for_browser)


def _transport(context: McpContext, params: McpServerOauthLoginParams) -> McpHttpTransport:
    server = context.configured(params.thread_id).get(params.name)
    if server is None:
        message = f"No MCP server named '{params.name[:200]}' found."
        raise invalid_request(message, "mcp_server_not_found", "name")
    transport = server.transport
    if not isinstance(transport, McpHttpTransport):
        message = "OAuth login is only supported for streamable HTTP servers."
        raise invalid_request(message, "unsupported", "name")
    if sends_token(transport):
        message = f"`mcp_servers.{params.name}` names a token of its own, which counts more than a login"
        raise invalid_request(message, "unsupported", "name")
    return transport


def _seconds(wanted: int | None) -> float:
    if wanted is None:
        return LIMIT_SECONDS
    if not 1 <= wanted <= LONGEST_SECONDS:
        message = f"timeoutSecs must be between 1 and {LONGEST_SECONDS:.0f}, not {wanted}"
        raise invalid_request(message, "invalid_params", "timeoutSecs")
    return float(wanted)


def _check_scopes(scopes: tuple[str, ...] | None) -> None:
    if scopes is not None and (len(scopes) > MOST_SCOPES or not all(map(_SCOPE.fullmatch, scopes))):
        message = f"scopes must be at most {MOST_SCOPES} words without spaces, quotes and backslashes"
        raise invalid_request(message, "invalid_params", "scopes")
