"""Stores the tokens of MCP servers in `.credentials.json` of the home, which is the file and the form of codex.
Refreshes a token that is about to expire or was refused.

The file is read again for each use, so that logins by other servers take effect at once. Writes are atomic and keep
entries that this server does not understand. Only the owner can read the file. The `repr` of these types contains no
secrets.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import msgspec
from msgspec import Struct

from app_server.engine.auth import oauth_client
from app_server.engine.auth.browser import is_safe_url
from app_server.engine.auth.credentials import filled, read_credentials_file, write_credentials_file
from app_server.engine.auth.oauth_http import OAuthAnswer, OAuthHttp
from app_server.engine.support.engine_errors import AuthError
from app_server_protocol.encoding import Json
from app_server_protocol.values import Redacted, replace

CREDENTIALS_FILE = ".credentials.json"

logger = logging.getLogger(__name__)


NAMES = {"server": "server_name", "url": "server_url", "expires_at_ms": "expires_at"}
"""Names in codex of the fields that are called otherwise there."""

OURS = ("token_endpoint", "resource", "client_secret", "basic_auth")
"""Fields that codex does not have. They are left out if they are not known."""


class McpTokens(Redacted, frozen=True, kw_only=True, rename=NAMES):
    """A login at one MCP server."""

    HIDDEN = ("access_token", "refresh_token", "client_secret")
    server: str
    url: str
    client_id: str
    access_token: str
    refresh_token: str | None = None
    expires_at_ms: int | None = None
    """Expiry time in milliseconds since 1970; None if it is not known."""
    scopes: tuple[str, ...] = ()
    token_endpoint: str | None = None
    """Address for refreshing the token; None for a login that codex stored: the address has to be found first."""
    resource: str | None = None
    client_secret: str | None = None
    basic_auth: bool | None = None
    """Whether the token endpoint takes the secret in a header; None if in the form, or if there is none."""


def read_mcp_tokens(home: Path, server: str, url: str) -> McpTokens | None:
    """Return the tokens stored for exactly this server name and address; None if there are none."""
    try:
        entries = _read(home)
    except AuthError as problem:
        logger.warning("%s", problem)
        return None
    for entry in entries.values():
        if _is_of(entry, server, url):
            with suppress(msgspec.ValidationError):
                return msgspec.convert(filled(entry), McpTokens)
    return None


def write_mcp_tokens(home: Path, tokens: McpTokens) -> None:
    """Store the tokens of one server. If it raises AuthError, the stored tokens are unchanged."""
    written = msgspec.to_builtins(tokens)
    entries = {
        key: entry for key, entry in _read(home).items() if not _is_of(entry, tokens.server, tokens.url)
    }
    entries[_key(tokens)] = {
        key: value for key, value in written.items() if value is not None or key not in OURS
    }
    write_credentials_file(home / CREDENTIALS_FILE, entries)


def _is_of(entry: Json, server: str, url: str) -> bool:
    return isinstance(entry, dict) and (entry.get("server_name"), entry.get("server_url")) == (server, url)


def _read(home: Path) -> dict[str, Json]:
    """Return the entries of the file, including those that are not understood. Raises AuthError."""
    return read_credentials_file(home / CREDENTIALS_FILE, partial(msgspec.convert, type=dict[str, Any])) or {}


def _key(tokens: McpTokens) -> str:
    """Return the key of an entry, in the form of codex."""
    about = json.dumps({"headers": {}, "type": "http", "url": tokens.url}, separators=(",", ":"))
    return f"{tokens.server}|{hashlib.sha256(about.encode()).hexdigest()[:16]}"


EXPIRY_MARGIN_MS = 60_000
LONGEST_SECONDS = 10 * 365 * 24 * 3600
REFRESH_SECONDS = 30.0


class McpTokenSource(Struct, frozen=True):
    """Provides valid tokens of MCP servers for one home. `clock` returns seconds since 1970."""

    home: Path
    http: OAuthHttp
    clock: Callable[[], float]
    renewing: anyio.Lock

    def has_login(self, server: str, url: str) -> bool:
        return read_mcp_tokens(self.home, server, url) is not None

    def scopes(self, server: str, url: str) -> tuple[str, ...] | None:
        """Return the scopes of a login; None if there is no login."""
        stored = read_mcp_tokens(self.home, server, url)
        return None if stored is None else stored.scopes

    async def token(self, server: str, url: str) -> str | None:
        """Return a valid token; None if there is no login. Raises AuthError if the token has expired and cannot be
        refreshed.
        """
        stored = self._stored(server, url)
        if stored is None:
            return None
        if stored.expires_at_ms is None or stored.expires_at_ms > self.clock() * 1000 + EXPIRY_MARGIN_MS:
            return stored.access_token
        try:
            return await self.renewed(server, url, stored.access_token)
        except AuthError:
            if stored.expires_at_ms > self.clock() * 1000:
                return stored.access_token  # the old token is still valid for a moment
            raise

    async def renewed(self, server: str, url: str, refused: str) -> str | None:
        """Return another token than `refused`; None if no other one is available. Raises AuthError."""
        async with self.renewing:
            stored = self._stored(server, url)
            if stored is None or stored.access_token != refused:
                return (
                    None if stored is None else stored.access_token
                )  # another task or process has refreshed it
            if stored.refresh_token is None:
                return None
            # Shielded: a refresh token may be valid only once, so the new tokens must be stored.
            with anyio.move_on_after(REFRESH_SECONDS, shield=True):
                return await self._refresh(stored, stored.refresh_token)
        raise AuthError("the authorization server did not answer in time")

    async def _refresh(self, stored: McpTokens, refresh_token: str) -> str:
        endpoint, resource = stored.token_endpoint, stored.resource
        if endpoint is None or not is_safe_url(endpoint):
            found = await oauth_client.find_resource(self.http, stored.url)
            resource, endpoint = (
                found.resource,
                (
                    await oauth_client.find_authorization_server(self.http, found.issuer, stored.url)
                ).token_endpoint,
            )
        form = {"grant_type": "refresh_token", "refresh_token": refresh_token}
        form |= {} if resource is None else {"resource": resource}
        client = oauth_client.OAuthClient(stored.client_id, stored.client_secret, stored.basic_auth is True)
        answer = await oauth_client.exchange(self.http, endpoint, client, form)
        after = tokens_of(answer, stored, self.clock())
        if self._stored(stored.server, stored.url) == stored:  # a new login in the meantime takes precedence
            write_mcp_tokens(self.home, after)
        return after.access_token

    def _stored(self, server: str, url: str) -> McpTokens | None:
        stored = read_mcp_tokens(self.home, server, url)
        return stored if stored is not None and oauth_client.is_header_safe(stored.access_token) else None


def tokens_of(answer: OAuthAnswer, before: McpTokens, now: float) -> McpTokens:
    """Return the login with the values of an answer. `now`: seconds since 1970."""
    scope, refresh = answer.text("scope"), answer.text("refresh_token")
    return replace(
        before,
        access_token=answer.text("access_token") or "",
        refresh_token=refresh if refresh and len(refresh) <= oauth_client.MAX_TOKEN else before.refresh_token,
        expires_at_ms=_expiry(answer.fields.get("expires_in"), now),
        scopes=before.scopes if scope is None else tuple(scope.split()),
    )


def _expiry(seconds: Json, now: float) -> int | None:
    if (
        isinstance(seconds, bool)
        or not isinstance(seconds, int | float)
        or not 0 <= seconds <= LONGEST_SECONDS
    ):
        return None
    return int((now + seconds) * 1000)
