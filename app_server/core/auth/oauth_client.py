"""A client of OAuth 2.1 for MCP servers: registers itself, makes the address for the browser, exchanges and refreshes
tokens. Every token is asked for one resource (RFC 8707), which is the MCP server.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from urllib.parse import quote, urlencode

from app_server.core.auth.authorize import LoginSecrets
from app_server.core.auth.oauth_discovery import AuthorizationServer
from app_server.core.auth.oauth_http import OAuthAnswer, OAuthHttp
from app_server.core.auth.oauth_tokens import McpTokens
from app_server.core.errors import AuthError
from protocol.base import Json
from protocol.records import dataclass

CLIENT_NAME = "app-server"
MAX_TOKEN = 64 * 1024
LONGEST_SECONDS = 10 * 365 * 24 * 3600


class McpLoginOver(AuthError):
    """The authorization server no longer accepts the refresh token: the user has to log in again."""


@dataclass(frozen=True, slots=True)
class OAuthClient:
    """What the authorization server knows this program as."""

    id: str
    secret: str | None = field(default=None, repr=False)


async def register(http: OAuthHttp, server: AuthorizationServer, redirect: str) -> OAuthClient:
    """Dynamic client registration (RFC 7591). Raises AuthError."""
    if server.registration_endpoint is None:
        raise AuthError("the authorization server registers no clients by itself")
    about: dict[str, Json] = {
        "client_name": CLIENT_NAME,
        "application_type": "native",
        "redirect_uris": [redirect],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
    }
    answer = await http.post_json(server.registration_endpoint, about)
    id = answer.text("client_id")
    if not answer.is_success or id is None:
        raise AuthError(f"the authorization server did not register this client{_status(answer)}")
    return OAuthClient(id, answer.text("client_secret"))


def browser_url(
    server: AuthorizationServer,
    client: OAuthClient,
    redirect: str,
    secrets: LoginSecrets,
    *,
    resource: str,
    scopes: Sequence[str],
) -> str:
    query = {
        "response_type": "code",
        "client_id": client.id,
        "redirect_uri": redirect,
        "code_challenge": secrets.challenge,
        "code_challenge_method": "S256",
        "state": secrets.state,
        "resource": resource,
    }
    if scopes:
        query["scope"] = " ".join(scopes)
    joint = "&" if "?" in server.authorization_endpoint else "?"
    return f"{server.authorization_endpoint}{joint}{urlencode(query, quote_via=quote, safe='')}"


async def exchange(
    http: OAuthHttp,
    token_endpoint: str,
    client: OAuthClient,
    form: Mapping[str, str],
) -> OAuthAnswer:
    """Raises AuthError, and McpLoginOver where asking again makes no sense."""
    secret = {} if client.secret is None else {"client_secret": client.secret}
    answer = await http.post_form(token_endpoint, {**form, "client_id": client.id, **secret})
    if not answer.is_success:
        kind = McpLoginOver if answer.fields.get("error") == "invalid_grant" else AuthError
        raise kind(f"the authorization server gave no token{_status(answer)}")
    token, token_type = answer.text("access_token"), answer.text("token_type") or "bearer"
    if token is None or token_type.lower() != "bearer" or not is_header_safe(token):
        raise AuthError("the authorization server answered without a bearer token")
    return answer


def tokens_of(answer: OAuthAnswer, before: McpTokens, now: float) -> McpTokens:
    """The login with what the answer says. `now`: seconds since 1970."""
    scope, refresh = answer.text("scope"), answer.text("refresh_token")
    return replace(
        before,
        access_token=answer.text("access_token") or "",
        refresh_token=refresh if refresh and len(refresh) <= MAX_TOKEN else before.refresh_token,
        expires_at_ms=_expiry(answer.fields.get("expires_in"), now),
        scopes=before.scopes if scope is None else tuple(scope.split()),
    )


def is_header_safe(token: str) -> bool:
    return token.isascii() and token.isprintable() and " " not in token and len(token) <= MAX_TOKEN


def _expiry(seconds: Json, now: float) -> int | None:
    if (
        isinstance(seconds, bool)
        or not isinstance(seconds, int | float)
        or not 0 <= seconds <= LONGEST_SECONDS
    ):
        return None
    return int((now + seconds) * 1000)


def _status(answer: OAuthAnswer) -> str:
    return f" (status {answer.status}){answer.error_code}"
