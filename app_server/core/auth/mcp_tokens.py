"""The token for requests to an MCP server: the stored one, refreshed where it is about to expire or was refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import anyio
from msgspec import Struct

from app_server.core.auth.authorize import is_safe_url
from app_server.core.auth.oauth_client import (
    OAuthClient,
    exchange,
    find_authorization_server,
    find_resource,
    is_header_safe,
    tokens_of,
)
from app_server.core.auth.oauth_http import OAuthHttp
from app_server.core.auth.oauth_tokens import McpTokens, read_mcp_tokens, write_mcp_tokens
from app_server.core.errors import AuthError

EXPIRY_MARGIN_MS = 60_000
REFRESH_SECONDS = 30.0


class McpTokenSource(Struct, frozen=True):
    """For one home. `clock` gives seconds since 1970."""

    home: Path
    http: OAuthHttp
    clock: Callable[[], float]
    renewing: anyio.Lock

    def has_login(self, server: str, url: str) -> bool:
        return read_mcp_tokens(self.home, server, url) is not None

    async def token(self, server: str, url: str) -> str | None:
        """Return a valid token; None without a login. Raises AuthError where it has expired and stays so."""
        stored = self._stored(server, url)
        if stored is None:
            return None
        if stored.expires_at_ms is None or stored.expires_at_ms > self.clock() * 1000 + EXPIRY_MARGIN_MS:
            return stored.access_token
        try:
            return await self.renewed(server, url, stored.access_token)
        except AuthError:
            if stored.expires_at_ms > self.clock() * 1000:
                return stored.access_token  # it is good for a moment
            raise

    async def renewed(self, server: str, url: str, refused: str) -> str | None:
        """Return another token than `refused`; None where there is none to be had. Raises AuthError."""
        async with self.renewing:
            stored = self._stored(server, url)
            if stored is None or stored.access_token != refused:
                return None if stored is None else stored.access_token  # somebody else has refreshed it
            if stored.refresh_token is None:
                return None
            # Shielded: a refresh token may be good for one use, so what comes for it must be stored.
            with anyio.move_on_after(REFRESH_SECONDS, shield=True):
                return await self._refresh(stored, stored.refresh_token)
        raise AuthError("the authorization server did not answer in time")

    async def _refresh(self, stored: McpTokens, refresh_token: str) -> str:
        endpoint, resource = stored.token_endpoint, stored.resource
        if endpoint is None or not is_safe_url(endpoint):
            found = await find_resource(self.http, stored.url)
            resource, endpoint = (
                found.resource,
                (await find_authorization_server(self.http, found.issuer, stored.url)).token_endpoint,
            )
        form = {"grant_type": "refresh_token", "refresh_token": refresh_token}
        form |= {} if resource is None else {"resource": resource}
        client = OAuthClient(stored.client_id, stored.client_secret)
        answer = await exchange(self.http, endpoint, client, form)
        after = tokens_of(answer, stored, self.clock())
        if self._stored(stored.server, stored.url) == stored:  # a new login meanwhile counts more
            write_mcp_tokens(self.home, after)
        return after.access_token

    def _stored(self, server: str, url: str) -> McpTokens | None:
        stored = read_mcp_tokens(self.home, server, url)
        return stored if stored is not None and is_header_safe(stored.access_token) else None
