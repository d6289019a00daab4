"""The user's login at the model provider: status, API key login, logout, and valid credentials.

Concurrent requests share one refresh, and a login that another process has just refreshed is not refreshed again.
`credentials` has the rules and the file, `login` the browser login.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from copy import copy
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from app_server.engine.auth import credentials
from app_server.engine.auth.credentials import (
    AuthMethod,
    Credentials,
    IdClaims,
    StoredAuth,
    Tokens,
    credentials_of,
)
from app_server.engine.config.config_values import NO_ENTRIES, LoginSettings
from app_server.engine.support.engine_errors import AuthError
from app_server.engine.support.lazy import Lazy
from app_server_protocol.values import Redacted, replace

if TYPE_CHECKING:
    from app_server.engine.auth.issuer import Issuer

REFRESH_SECONDS = 15.0
"""Timeout of a refresh, in seconds. An interrupt may have to wait for it. The issuer responds in well under a
second.
"""

REVOKE_SECONDS = 5.0

logger = logging.getLogger(__name__)


class AuthStatus(Redacted, frozen=True):
    HIDDEN = ("token",)
    method: AuthMethod | None
    """Method of the stored login; None if there is none. A key of the environment is no login."""
    token: str | None
    """Token of a stored login; None unless it was requested."""
    requires_openai_auth: bool
    has_credentials: bool = False
    """Whether there is a login, or a key of the environment that requests are sent with."""


class AuthManager:
    """Manages the credentials of one home. `clock` returns seconds since 1970."""

    def __init__(
        self,
        home: Path,
        *,
        clock: Callable[[], float],
        issuer: Lazy[Issuer],
        env_api_keys: Mapping[str, str] = NO_ENTRIES,
        first_api_keys: Mapping[str, str] = NO_ENTRIES,
    ) -> None:
        self.home = home
        self.settings = LoginSettings()
        """Restrictions of logins by the user's settings."""
        self._clock, self._issuer = clock, issuer
        self._env_api_keys, self._first_api_keys = env_api_keys, first_api_keys
        self._renewal = anyio.Lock()

    @property
    def issuer(self) -> Issuer:
        """The OAuth issuer, which most servers never use."""
        return self._issuer.get()

    def under(self, settings: LoginSettings) -> AuthManager:
        """Return a manager of the same logins, restricted by these settings."""
        other = copy(self)
        other.settings = settings
        return other

    def with_keys(
        self, env_api_keys: Mapping[str, str], first_api_keys: Mapping[str, str] = NO_ENTRIES
    ) -> AuthManager:
        """Return a manager of the same logins with API keys from another environment, by their variables.
        `env_api_keys` are used if there is no login; `first_api_keys` take precedence over every login.
        """
        other = copy(self)
        other._env_api_keys, other._first_api_keys = env_api_keys, first_api_keys
        return other

    async def status(
        self, *, requires_openai_auth: bool, include_token: bool = False, refresh: bool = False
    ) -> AuthStatus:
        """Return the login status for clients. Never raises: without credentials, the status has no method."""
        if not requires_openai_auth:
            return AuthStatus(None, None, requires_openai_auth=False)
        try:
            if refresh:
                await self.refresh()
            found = await self.credentials()
        except AuthError as error:
            logger.warning("the login could not be renewed: %s", error)
            found = self.stored_credentials()
        if found is None:
            return AuthStatus(None, None, requires_openai_auth=True)
        if not self._is_stored(found):
            return AuthStatus(None, None, requires_openai_auth=True, has_credentials=True)
        token = found.bearer if include_token else None
        return AuthStatus(found.method, token, requires_openai_auth=True, has_credentials=True)

    async def credentials(self) -> Credentials | None:
        """Return valid credentials, refreshed if they expire soon; None if there is no login."""
        stored = self._read()
        if credentials.is_ending(stored, self._now()):
            try:
                return await self.refresh(credentials_of(stored))
            except AuthError:
                # The issuer may be unreachable while the token is still valid.
                if credentials.has_ended(stored, self._now()):
                    raise
        return credentials_of(stored)

    async def refresh(self, refused: Credentials | None = None) -> Credentials | None:
        """Return new credentials after the provider rejected some; None if there is no refreshable login.

        If stored credentials differ from `refused`, they are returned without a refresh: another task or process has
        refreshed them. Raises AuthError if the refresh fails.
        """
        before = refused or credentials_of(self._read())
        async with self._renewal:
            # Shielded: new tokens from the issuer must be stored, or the login is lost.
            with anyio.move_on_after(REFRESH_SECONDS, shield=True):
                return await self._renew(before)
        raise AuthError("the login server did not answer in time")

    def method(self) -> AuthMethod | None:
        """Return the method of the credentials that requests are sent with, without sending one; None if there are
        none.
        """
        found = self.stored_credentials()
        return found.method if found else None

    def login_method(self) -> AuthMethod | None:
        """Return the method of the stored login; None if there is none, even if the environment has a key."""
        found = self.stored_credentials()
        return found.method if found and self._is_stored(found) else None

    def stored_credentials(self) -> Credentials | None:
        """Return stored credentials that are valid without a refresh, without sending a request; None if there are
        none.
        """
        stored = self._read()
        return None if credentials.has_ended(stored, self._now()) else credentials_of(stored)

    def identity(self) -> IdClaims | None:
        """Return the claims of a ChatGPT login; None for an API key, or if there is no login."""
        stored = self._read()
        if stored.api_key is not None or stored.tokens is None:
            return None
        claims = credentials.read_id_token(stored.tokens.id_token)
        return replace(claims, account_id=stored.tokens.account_id or claims.account_id)

    def login_with_api_key(self, api_key: str) -> None:
        """Replace the stored login by an API key. Raises AuthError."""
        credentials.require_login_allowed(self.settings, AuthMethod.API_KEY)
        key = api_key.strip()
        if not key or not key.isascii() or not key.isprintable() or " " in key:
            raise AuthError("that is not an API key")
        credentials.write_auth(self.home, StoredAuth(api_key=key))

    def store_login(self, tokens: Tokens, api_key: str | None) -> None:
        """Store the result of a browser login. Raises AuthError if its workspace is not allowed."""
        credentials.require_login_allowed(self.settings, AuthMethod.CHATGPT)
        if not credentials.is_allowed_workspace(self.settings, tokens):
            raise AuthError("the login is for a workspace that `forced_chatgpt_workspace_id` does not allow")
        tokens = replace(tokens, account_id=credentials.account_of(tokens))
        auth = StoredAuth(api_key=api_key, tokens=tokens, last_refresh=self._now())
        credentials.write_auth(self.home, auth)

    async def logout(self) -> bool:
        """Delete the login, then revoke it at the issuer if possible. Return whether there was one."""
        stored = credentials.read_auth(self.home)
        was_there = credentials.delete_auth(self.home)
        if stored is not None and stored.tokens is not None and stored.tokens.refresh_token:
            with anyio.move_on_after(REVOKE_SECONDS):
                try:
                    await self.issuer.revoke(stored.tokens.refresh_token)
                except AuthError as error:
                    logger.warning("logged out here only: %s", error)
        return was_there

    async def _renew(self, before: Credentials | None) -> Credentials | None:
        stored = self._read()
        now = credentials_of(stored)
        if now is not None and before is not None and now.bearer != before.bearer:
            return now
        if stored.api_key is not None or stored.tokens is None or not stored.tokens.refresh_token:
            return None
        try:
            tokens = await self.issuer.refresh(stored.tokens)
        except AuthError:
            # A refresh token is valid once: another process may just have used it and stored the next one.
            current = credentials_of(self._read())
            if now is not None and current is not None and current.bearer != now.bearer:
                return current
            raise
        written = credentials.read_auth(self.home)
        if written is None or written.tokens != stored.tokens:
            # A logout or login during the refresh takes precedence.
            return credentials_of(self._read())
        credentials.write_auth(self.home, replace(written, tokens=tokens, last_refresh=self._now()))
        return credentials_of(StoredAuth(tokens=tokens))

    def _read(self) -> StoredAuth:
        first = self._unclaimed(self._first_api_keys)
        stored = StoredAuth(api_key=first) if first else credentials.read_auth(self.home) or StoredAuth()
        return credentials.permitted(stored, self.settings, self._unclaimed(self._env_api_keys))

    def _unclaimed(self, keys: Mapping[str, str]) -> str | None:
        """Return the first key whose variable does not belong to a configured provider or MCP server; None if there is
        none.
        """
        claimed = self.settings.claimed_variables
        return next((key for name, key in keys.items() if name not in claimed), None)

    def _is_stored(self, found: Credentials) -> bool:
        stored = credentials_of(credentials.read_auth(self.home) or StoredAuth())
        return stored is not None and stored.bearer == found.bearer

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock(), UTC)
