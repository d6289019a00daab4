"""The stored login of an MCP server, in its requests. Imports httpx, so import it late."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import httpx

from app_server.core.auth.mcp_tokens import McpTokenSource
from app_server.core.auth.oauth_client import McpLoginOver


class StoredLogin(httpx.Auth):
    """Sends the token of one server to that server. A token that is refused is refreshed once."""

    def __init__(self, tokens: McpTokenSource, server: str, url: str) -> None:
        self._tokens, self._server, self._url = tokens, server, url

    async def async_auth_flow(self, request: httpx.Request) -> AsyncGenerator[httpx.Request, httpx.Response]:
        """Raises AuthError where a login cannot be refreshed for now. One that is over is none."""
        try:
            token = await self._tokens.token(self._server, self._url)
        except McpLoginOver:
            token = None
        if token is not None:
            request.headers["Authorization"] = f"Bearer {token}"
        response = yield request
        if response.status_code != httpx.codes.UNAUTHORIZED or token is None:
            return
        try:
            renewed = await self._tokens.renewed(self._server, self._url, token)
        except McpLoginOver:
            return
        if renewed is not None:
            request.headers["Authorization"] = f"Bearer {renewed}"
            yield request
