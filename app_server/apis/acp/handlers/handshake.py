"""`initialize`, and logging in and out."""

from __future__ import annotations

import webbrowser
from collections.abc import Mapping

import anyio
import msgspec
from msgspec import Struct

from app_server.apis.acp.client import API_KEY, auth_methods, initialize_fields, parse_client
from app_server.apis.acp.errors import invalid_params, login_needed
from app_server.apis.acp.session import Sessions
from app_server.apis.handshake import Handshake
from app_server.core.auth.accounts import Accounts
from app_server.core.auth.home_login import LoginOutcome
from app_server.core.config.settings import UserSettings
from app_server.core.errors import ConfigError
from app_server.core.threads import run_in_thread
from protocol.acp.session import (
    AgentInitializeRequest,
    AgentInitializeResponse,
    AuthenticateRequest,
    AuthenticateResponse,
    LogoutRequest,
    LogoutResponse,
)
from protocol.base import Json


async def open_browser(url: str) -> bool:
    """False where there is none."""
    return await run_in_thread(webbrowser.open, url, abandon_on_cancel=True)


LOGIN_NEEDED = "Login required: choose a way to log in, or set OPENAI_API_KEY where the server is started"


class LoginContext(Struct, frozen=True):
    config: UserSettings
    accounts: Accounts
    sessions: Sessions
    handshake: Handshake

    async def require(self) -> None:
        """Raises RpcError where the configured provider needs a login and there is none."""
        if await self.lacks_login():
            raise login_needed(LOGIN_NEEDED)

    async def lacks_login(self) -> bool:
        status = await self.accounts.status()
        return status.requires_openai_auth and status.method is None

    def methods(self) -> list[Json]:
        try:
            needs_login = self.accounts.needs_login()
        except ConfigError:
            needs_login = False  # a session says what is wrong with the settings
        return auth_methods(self.config.environment, needs_login=needs_login)


async def initialize(context: LoginContext, params: AgentInitializeRequest) -> AgentInitializeResponse:
    accept(context, params.model_extra or {})
    return AgentInitializeResponse.model_validate(initialize_fields(context.methods()))


def accept(context: LoginContext, params: Mapping[str, Json]) -> None:
    """Adopt what the client announced. Raises RpcError where it has done so before."""
    client = parse_client(params)
    context.handshake.accept(client.name, client.version, elicitation=client.forms)
    context.sessions.client = client


async def authenticate(context: LoginContext, params: AuthenticateRequest) -> AuthenticateResponse:
    """Answered once the login is done; at once where nothing is missing."""
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
