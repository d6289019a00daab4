"""The user's login at the model provider: status, API key login, logout, and valid credentials.

It caches nothing of auth.json. Concurrent requests share one refresh, and a login that another process has refreshed
meanwhile is not refreshed again. `login` implements the browser login.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from copy import copy
from dataclasses import field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path

import anyio

from app_server.core.auth.id_token import IdClaims, expires_at, read_id_token
from app_server.core.auth.issuer import Issuer
from app_server.core.auth.storage import StoredAuth, Tokens, delete_auth, read_auth, write_auth
from app_server.core.config.types import LoginSettings
from app_server.core.errors import AuthError
from protocol.records import dataclass

EXPIRY_MARGIN_SECONDS = 300.0
"""A token that expires sooner is refreshed before use: a turn's requests may take minutes."""

REFRESH_INTERVAL = timedelta(days=8)
"""Tokens without an expiry time are refreshed at this interval."""

REFRESH_SECONDS = 15.0
"""Timeout of a refresh, which an interrupt may have to wait for; the issuer responds in well under a second."""

REVOKE_SECONDS = 5.0

logger = logging.getLogger(__name__)


class AuthMethod(StrEnum):
    """The values are those of the wire."""

    API_KEY = "apikey"
    CHATGPT = "chatgpt"


@dataclass(frozen=True, slots=True)
class Credentials:
    """The credentials of a request to the model provider."""

    bearer: str = field(repr=False)
    account_id: str | None
    """For ChatGPT logins; sent in a header."""
    method: AuthMethod


@dataclass(frozen=True, slots=True)
class AuthStatus:
    method: AuthMethod | None
    token: str | None = field(repr=False)
    """Only if requested."""
    requires_openai_auth: bool


@dataclass(frozen=True, slots=True)
class LoginRules:
    """Which logins the user's settings allow."""

    forced_method: str | None = None
    """`chatgpt` or `api`; None allows both."""
    workspace_id: str | None = None

    def allows(self, method: AuthMethod) -> bool:
        wanted = "api" if method is AuthMethod.API_KEY else "chatgpt"
        return self.forced_method in (None, wanted)

    def require(self, method: AuthMethod) -> None:
        """Raises AuthError if the settings require the other method."""
        if self.allows(method):
            return
        this, other = ("API key", "ChatGPT") if method is AuthMethod.API_KEY else ("ChatGPT", "API key")
        raise AuthError(f"{this} login is turned off by `forced_login_method`; use {other} login.")


class AuthManager:
    """The credentials of one home. `clock` gives seconds since the epoch."""

    def __init__(
        self,
        home: Path,
        *,
        clock: Callable[[], float],
        issuer: Issuer,
        env_api_key: str | None = None,
        rules: LoginRules | None = None,
    ) -> None:
        self.home = home
        self.issuer = issuer
        self.rules = rules or LoginRules()
        self._clock = clock
        self._env_api_key = env_api_key
        self._renewal = anyio.Lock()

    def under(self, settings: LoginSettings) -> AuthManager:
        """The same logins, as far as these settings allow them."""
        other = copy(self)
        other.follow(settings)
        return other

    def follow(self, settings: LoginSettings) -> None:
        """Allow the logins that the current settings allow."""
        self.rules = LoginRules(settings.forced_method, settings.workspace_id)

    async def status(
        self, *, requires_openai_auth: bool, include_token: bool = False, refresh: bool = False
    ) -> AuthStatus:
        """The login status for clients. Never raises: without credentials, the status has no method."""
        if not requires_openai_auth:
            return AuthStatus(None, None, requires_openai_auth=False)
        try:
            if refresh:
                await self.refresh()
            credentials = await self.credentials()
        except AuthError as error:
            logger.warning("the login could not be renewed: %s", error)
            credentials = self._usable_now()
        if credentials is None:
            return AuthStatus(None, None, requires_openai_auth=True)
        token = credentials.bearer if include_token else None
        return AuthStatus(credentials.method, token, requires_openai_auth=True)

    async def credentials(self) -> Credentials | None:
        """Valid credentials, refreshed if they expire soon; None without a login."""
        stored = self._stored()
        if stored.api_key is None and stored.tokens is not None and self._is_ending(stored):
            try:
                return await self.refresh(_of_tokens(stored.tokens))
            except AuthError:
                # The issuer may be unreachable while the token is still valid.
                if self._has_ended(stored.tokens):
                    raise
        return self._credentials_of(stored)

    async def refresh(self, refused: Credentials | None = None) -> Credentials | None:
        """New credentials after the provider rejected some; None without a refreshable login.

        With `refused`, stored credentials that differ from it are returned without a refresh: another task or process
        has refreshed them. Raises AuthError if the refresh fails.
        """
        before = refused or self._credentials_of(self._stored())
        async with self._renewal:
            # Shielded: new tokens from the issuer must be stored, or the login is lost.
            with anyio.move_on_after(REFRESH_SECONDS, shield=True):
                return await self._renew(before)
        raise AuthError("the login server did not response in time")

    def method(self) -> AuthMethod | None:
        """The stored login method, without any request."""
        credentials = self.stored_credentials()
        return credentials.method if credentials else None

    def stored_credentials(self) -> Credentials | None:
        """Those that can be used as they are, without any request."""
        return self._usable_now()

    def identity(self) -> IdClaims | None:
        """The claims of a ChatGPT login; None for API keys and without a login."""
        stored = self._stored()
        if stored.api_key is not None or stored.tokens is None:
            return None
        claims = read_id_token(stored.tokens.id_token)
        return replace(claims, account_id=stored.tokens.account_id or claims.account_id)

    def login_with_api_key(self, api_key: str) -> None:
        """Replaces the stored login by an API key. Raises AuthError."""
        self.rules.require(AuthMethod.API_KEY)
        key = api_key.strip()
        if not key or not key.isascii() or not key.isprintable() or " " in key:
            raise AuthError("that is not an API key")
        write_auth(self.home, StoredAuth(api_key=key))

    def store_login(self, tokens: Tokens, api_key: str | None) -> None:
        """Stores the result of a browser login. Raises AuthError if its workspace is not allowed."""
        self.rules.require(AuthMethod.CHATGPT)
        account = read_id_token(tokens.id_token).account_id
        if not self._is_allowed_workspace(tokens):
            raise AuthError("the login is for a workspace that `forced_chatgpt_workspace_id` does not allow")
        auth = StoredAuth(
            api_key=api_key,
            tokens=replace(tokens, account_id=tokens.account_id or account),
            last_refresh=self._now(),
        )
        write_auth(self.home, auth)

    async def logout(self) -> bool:
        """Deletes the login, then revokes it at the issuer if possible. Returns whether there was one."""
        stored = read_auth(self.home)
        was_there = delete_auth(self.home)
        if stored is not None and stored.tokens is not None and stored.tokens.refresh_token:
            with anyio.move_on_after(REVOKE_SECONDS):
                try:
                    await self.issuer.revoke(stored.tokens.refresh_token)
                except AuthError as error:
                    logger.warning("logged out here only: %s", error)
        return was_there

    async def _renew(self, before: Credentials | None) -> Credentials | None:
        stored = self._stored()
        now = self._credentials_of(stored)
        if now is not None and before is not None and now.bearer != before.bearer:
            return now
        if stored.api_key is not None or stored.tokens is None or not stored.tokens.refresh_token:
            return None
        try:
            tokens = await self.issuer.refresh(stored.tokens)
        except AuthError:
            # A refresh token is valid once: another process may just have used it and stored the next one.
            current = self._credentials_of(self._stored())
            if now is not None and current is not None and current.bearer != now.bearer:
                return current
            raise
        written = read_auth(self.home)
        if written is None or written.tokens != stored.tokens:
            # A logout or login during the refresh takes precedence.
            return self._credentials_of(self._stored())
        write_auth(self.home, replace(written, tokens=tokens, last_refresh=self._now()))
        return _of_tokens(tokens)

    def _stored(self) -> StoredAuth:
        """The stored login if allowed, else an API key from the environment."""
        stored = read_auth(self.home) or StoredAuth()
        if not self.rules.allows(AuthMethod.API_KEY):
            stored = replace(stored, api_key=None)
        if not self.rules.allows(AuthMethod.CHATGPT) or not self._is_allowed_workspace(stored.tokens):
            stored = replace(stored, tokens=None)
        if stored.api_key is None and stored.tokens is None and self.rules.allows(AuthMethod.API_KEY):
            return StoredAuth(api_key=self._env_api_key)
        return stored

    def _is_allowed_workspace(self, tokens: Tokens | None) -> bool:
        if tokens is None or self.rules.workspace_id is None:
            return True
        return (tokens.account_id or read_id_token(tokens.id_token).account_id) == self.rules.workspace_id

    def _usable_now(self) -> Credentials | None:
        stored = self._stored()
        if stored.api_key is None and stored.tokens is not None and self._has_ended(stored.tokens):
            return None
        return self._credentials_of(stored)

    def _credentials_of(self, stored: StoredAuth) -> Credentials | None:
        if stored.api_key is not None:
            return Credentials(stored.api_key, None, AuthMethod.API_KEY)
        return None if stored.tokens is None else _of_tokens(stored.tokens)

    def _is_ending(self, stored: StoredAuth) -> bool:
        if stored.tokens is None:
            return False
        end = expires_at(stored.tokens.access_token)
        if end is not None:
            return end - EXPIRY_MARGIN_SECONDS <= self._clock()
        return stored.last_refresh is None or self._now() - stored.last_refresh >= REFRESH_INTERVAL

    def _has_ended(self, tokens: Tokens) -> bool:
        end = expires_at(tokens.access_token)
        return end is not None and end <= self._clock()

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock(), UTC)


def _of_tokens(tokens: Tokens) -> Credentials:
    account = tokens.account_id or read_id_token(tokens.id_token).account_id
    return Credentials(tokens.access_token, account, AuthMethod.CHATGPT)
