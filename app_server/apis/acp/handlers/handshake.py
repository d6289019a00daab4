"""`initialize`, and logging in and out."""

from __future__ import annotations

import webbrowser

import anyio
import msgspec
from msgspec import Struct

from app_server.apis.acp.client import API_KEY, auth_methods, initialize_fields
from app_server.apis.acp.errors import invalid_params, login_needed
from app_server.apis.acp.login import LoginContext, accept
from app_server.apis.route import Route, route
from app_server.core.auth.home_login import LoginOutcome
from app_server.core.threads import run_in_thread
from protocol.acp.handshake import (
    AUTHENTICATE,
    INITIALIZE,
    LOGOUT,
    AgentInitializeRequest,
    AgentInitializeResponse,
    AuthenticateRequest,
    AuthenticateResponse,
    LogoutRequest,
    LogoutResponse,
)


async def open_browser(url: str) -> bool:
    """Open an address in the user's browser; return False where there is none."""
    return await run_in_thread(webbrowser.open, url, abandon_on_cancel=True)


async def initialize(context: LoginContext, params: AgentInitializeRequest) -> AgentInitializeResponse:
    accept(context, params.model_extra or {})
    return AgentInitializeResponse.model_validate(initialize_fields(context.methods()))


async def authenticate(context: LoginContext, params: AuthenticateRequest) -> AuthenticateResponse:
    """Answer once the login is done; at once where nothing is missing."""
    offered = [method["id"] for method in auth_methods(context.config.environment, needs_login=True)]
    if params.method_id not in offered:
        raise invalid_params(f"unknown method of authentication: {params.method_id[:100]}", "methodId")
    if not await context.lacks_login():
        return AuthenticateResponse()
    if params.method_id == API_KEY:
        raise login_needed("There is no CODEX_API_KEY and no OPENAI_API_KEY in the server's environment")
    await _browser_login(context)
    return AuthenticateResponse()


async def logout(context: LoginContext, params: LogoutRequest) -> LogoutResponse:
    await context.accounts.logout()
    return LogoutResponse()


class _Outcome(Struct):
    came: anyio.Event = msgspec.field(default_factory=anyio.Event)
    value: LoginOutcome | None = None

    def take(self, outcome: LoginOutcome) -> None:
        self.value = outcome
        self.came.set()


async def _browser_login(context: LoginContext) -> None:
    login, outcome = await context.accounts.open_login(), _Outcome()
    context.accounts.await_in_background(login, outcome.take)
    try:
        if not await open_browser(login.flow.auth_url):
            raise login_needed("No browser could be opened; log in with an API key")
        await outcome.came.wait()
    finally:
        context.accounts.cancel(login.id)
    if outcome.value is None or not outcome.value.success:
        reason = outcome.value.error if outcome.value else None
        raise login_needed(f"The login failed: {reason or 'it was not finished'}")


def routes(login: LoginContext) -> tuple[Route, ...]:
    """Return the routes of the handshake and of logins."""
    return (
        route(INITIALIZE, initialize, login),
        route(AUTHENTICATE, authenticate, login),
        route(LOGOUT, logout, login),
    )
