"""A login at an MCP server through the user's browser, as MCP's specification of authorization has it.

Who gives tokens is found out, this program is registered there, the user agrees in the browser, the code is exchanged,
the tokens are stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import anyio
from msgspec import Struct

from app_server.core.auth import oauth_client
from app_server.core.auth.browser import CALLBACK_PATH, Granted, is_safe_url, new_login_secrets
from app_server.core.auth.login import LoginFlow, listen_for_browser
from app_server.core.auth.mcp_tokens import McpTokens, tokens_of, write_mcp_tokens
from app_server.core.auth.oauth_http import OAuthHttp
from app_server.core.errors import AuthError

OPEN_SECONDS = 60.0
"""For all requests before the user is asked."""
PORTS = (0,)
"""The port is registered with the client, so any will do."""


class McpLogins(Struct, frozen=True):
    """Logs in at MCP servers, for one home. `clock` gives seconds since 1970."""

    home: Path
    http: OAuthHttp
    clock: Callable[[], float]
    random: Callable[[int], bytes]

    async def open_login(self, server: str, url: str, scopes: Sequence[str] | None) -> LoginFlow:
        """Return a flow whose `auth_url` the user has to open. `scopes`: None asks for those that the server names.
        Raises AuthError.
        """
        if not is_safe_url(url):
            raise AuthError("a login needs a server with encryption, or one of this machine")
        with anyio.move_on_after(OPEN_SECONDS):
            return await self._open(server, url, scopes)
        raise AuthError("who gives tokens for it was not found out in time")

    async def _open(self, server: str, url: str, scopes: Sequence[str] | None) -> LoginFlow:
        resource = await oauth_client.find_resource(self.http, url)
        authorization = await oauth_client.find_authorization_server(self.http, resource.issuer, url)
        listener, port = await listen_for_browser(PORTS)
        try:
            redirect = f"http://127.0.0.1:{port}{CALLBACK_PATH}"
            client = await oauth_client.register(self.http, authorization, redirect)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await listener.aclose()
            raise
        secrets = new_login_secrets(self.random)
        asked = resource.scopes if scopes is None else tuple(scopes)
        address = oauth_client.browser_url(
            authorization, client, redirect, secrets, resource=resource.resource, scopes=asked
        )

        async def redeem(granted: Granted) -> None:
            issuer = granted.issuer
            if (issuer is None and authorization.names_issuer) or issuer not in (None, authorization.issuer):
                raise AuthError("the answer comes from another authorization server")
            form = {
                "grant_type": "authorization_code",
                "code": granted.code,
                "redirect_uri": redirect,
                "code_verifier": secrets.verifier,
                "resource": resource.resource,
            }
            answer = await oauth_client.exchange(self.http, authorization.token_endpoint, client, form)
            login = McpTokens(
                server=server,
                url=url,
                client_id=client.id,
                client_secret=client.secret,
                access_token="",
                scopes=asked,
                token_endpoint=authorization.token_endpoint,
                resource=resource.resource,
            )
            write_mcp_tokens(self.home, tokens_of(answer, login, self.clock()))

        return LoginFlow(listener, port, secrets.state, address, redeem)
