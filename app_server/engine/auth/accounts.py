"""The user's accounts at the model provider and at MCP servers: the interface of this room for all APIs.

It follows the settings, which may forbid logins. A new login cancels the pending one for the same purpose.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

from anyio.abc import TaskGroup
from msgspec import Struct

from app_server.engine.auth import account_usage, login
from app_server.engine.auth.auth_manager import AuthManager, AuthStatus
from app_server.engine.auth.credentials import AuthMethod, IdClaims, LoginOutcome
from app_server.engine.config.mcp_server_settings import McpHttpTransport
from app_server.engine.config.settings_service import UserSettings
from app_server.engine.support.lazy import Lazy

if TYPE_CHECKING:
    from app_server.engine.auth.login import DeviceLoginFlow, LoginAttempt, LoginFlow, McpLogins
    from app_server.engine.auth.usage_limits import AccountUsage


ACCOUNT = ""
"""Purpose of a login at the model provider. The purpose of any other login contains the name of its server."""


Flow = TypeVar("Flow", bound="LoginAttempt")


class OpenLogin(Struct, Generic[Flow], frozen=True):
    id: str
    flow: Flow
    purpose: str = ACCOUNT


class Accounts:
    """The logins of one home, and the pending logins of one server."""

    def __init__(
        self,
        auth: AuthManager,
        settings: UserSettings,
        mcp: Lazy[McpLogins],
        background: TaskGroup,
        *,
        originator: Callable[[], str],
        new_id: Callable[[], str],
        random: Callable[[int], bytes],
        env: Mapping[str, str],
    ) -> None:
        self._auth, self._settings, self._mcp, self._background = auth, settings, mcp, background
        self._originator, self._new_id, self._random = originator, new_id, random
        self._env = env
        self._pending: dict[str, OpenLogin[LoginAttempt]] = {}

    @property
    def logging_in(self) -> bool:
        """Whether a login is pending."""
        return bool(self._pending)

    def needs_login(self) -> bool:
        """Return whether the configured provider requires a login. Raises ConfigError."""
        config = self._settings.load()
        self._auth.settings = config.login
        return config.provider.requires_openai_auth

    async def status(self, *, include_token: bool = False, refresh: bool = False) -> AuthStatus:
        """Return the login status; it has no method if the provider requires no login. Raises ConfigError."""
        return await self._auth.status(
            requires_openai_auth=self.needs_login(), include_token=include_token, refresh=refresh
        )

    def method(self) -> AuthMethod | None:
        """Return the login method without sending a request; None if the user is not logged in."""
        return self._auth.login_method()

    def identity(self) -> IdClaims | None:
        """Return the claims of a ChatGPT login; None for an API key, or if there is no login."""
        return self._auth.identity()

    async def usage(self) -> AccountUsage:
        """Return how much of a ChatGPT account's limits is used up. Raises AuthError and ConfigError."""
        self.needs_login()
        return await account_usage.ask_usage(self._auth, self._env)

    def store_api_key(self, key: str) -> None:
        """Replace the login by an API key. Raises AuthError and ConfigError."""
        self.needs_login()
        self._auth.login_with_api_key(key)

    async def logout(self) -> bool:
        """Delete the login, and revoke it where possible. Return whether there was one."""
        return await self._auth.logout()

    async def open_login(self) -> OpenLogin[LoginFlow]:
        """Begin a browser login: listen for its callback. The caller then calls `await_in_background`. Raises
        AuthError.
        """
        self.needs_login()
        self._end(ACCOUNT)
        originator = self._originator()
        return self._add(await login.open_login(self._auth, random=self._random, originator=originator))

    async def open_device_login(self) -> OpenLogin[DeviceLoginFlow]:
        """Begin a login with a device code: request the code. The caller then calls `await_in_background`. Raises
        AuthError.
        """
        self.needs_login()
        self._end(ACCOUNT)
        return self._add(await login.open_device_login(self._auth))

    async def open_mcp_login(
        self, server: str, transport: McpHttpTransport, scopes: Sequence[str] | None
    ) -> OpenLogin[LoginFlow]:
        """Begin a browser login at an MCP server: find its authorization server, and listen for the callback, like
        `open_login`.
        """
        purpose = f"mcp server {server}"
        self._end(purpose)
        return self._add(await self._mcp.get().open_login(server, transport, scopes), purpose)

    def _add(self, flow: Flow, purpose: str = ACCOUNT) -> OpenLogin[Flow]:
        login = OpenLogin(self._new_id(), flow, purpose)
        self._pending[login.id] = OpenLogin(login.id, flow, purpose)
        return login

    def _end(self, purpose: str) -> None:
        for pending in self._pending.values():
            if pending.purpose == purpose:
                pending.flow.cancel()

    def await_in_background(
        self,
        login: OpenLogin[Flow],
        on_finished: Callable[[LoginOutcome], None],
        limit_seconds: float | None = None,
    ) -> None:
        """Wait for the outcome in the background, and pass it to `on_finished`. `limit_seconds` is the timeout; None
        for the usual timeout of such a login.
        """
        self._background.start_soon(self._await, login, on_finished, limit_seconds, name="login")

    def cancel(self, id: str) -> bool:
        """Cancel a pending login; return False if there is none with this id."""
        login = self._pending.get(id)
        if login is None:
            return False
        login.flow.cancel()
        return True

    async def _await(
        self,
        login: OpenLogin[Flow],
        on_finished: Callable[[LoginOutcome], None],
        limit_seconds: float | None,
    ) -> None:
        try:
            outcome = await login.flow.run_login(limit_seconds)
        finally:
            self._pending.pop(login.id, None)
        on_finished(outcome)
