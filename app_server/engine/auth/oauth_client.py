"""A client of OAuth 2.1 for MCP servers: finds the authorization server of an MCP server, registers this program there,
and exchanges and refreshes tokens.

The metadata of the MCP server (RFC 9728) and of its authorization server (RFC 8414, OpenID Connect) come from the
network. So addresses are checked before anything is sent there, and metadata that claim to be those of another server
are refused. Every token is requested for one resource (RFC 8707), which is the MCP server.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import quote, urlsplit, urlunsplit

from msgspec import Struct

from app_server.engine.auth.browser import is_safe_url
from app_server.engine.auth.oauth_http import OAuthAnswer, OAuthHttp
from app_server.engine.http.address import origin
from app_server.engine.support.engine_errors import AuthError
from app_server_protocol.encoding import Json
from app_server_protocol.values import Redacted

RESOURCE = "/.well-known/oauth-protected-resource"
SERVERS = ("/.well-known/oauth-authorization-server", "/.well-known/openid-configuration")
MAX_SCOPES = 100
OFFLINE_ACCESS = "offline_access"
_METADATA = re.compile(r'resource_metadata\s*=\s*"([^"\\]{1,2048})"', re.IGNORECASE)
_LACKS = re.compile(r'(?<![a-z_])error\s*=\s*"?insufficient_scope\b', re.IGNORECASE)
_PLAIN_SCOPE = re.compile(r"[A-Za-z0-9_.:/+@-]{1,200}")
_SCOPE = re.compile(r'(?<![a-z_])scope\s*=\s*"([^"\\]{1,2048})"', re.IGNORECASE)


class ProtectedResource(Struct, frozen=True):
    """The metadata of an MCP server about itself."""

    resource: str
    issuer: str
    """The first authorization server that the metadata name."""
    scopes: tuple[str, ...]


class AuthorizationServer(Struct, frozen=True):
    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    registration_endpoint: str | None
    names_issuer: bool
    """Whether its callbacks in the browser name the issuer (RFC 9207)."""
    offers_offline_access: bool = False
    """Whether it lists the scope with which clients get refresh tokens."""
    basic_auth: bool = False
    """Whether it takes the secret of a client in the header `Authorization` alone (RFC 8414: unless it says more)."""

    def with_offline_access(self, scopes: tuple[str, ...]) -> tuple[str, ...]:
        """Return scopes that are asked for, with that for refresh tokens. Without any scope the server decides."""
        added = self.offers_offline_access and scopes and OFFLINE_ACCESS not in scopes
        return (*scopes, OFFLINE_ACCESS) if added else scopes


def lacking_scopes(challenge: str) -> tuple[str, ...] | None:
    """Return the scopes that a refused token lacks, by the header `WWW-Authenticate`; None if it lacks none. Scopes
    whose names do not look like any are left out.
    """
    if not _LACKS.search(challenge):
        return None
    scope = _SCOPE.search(challenge)
    return plain_scopes(scope[1].split()[:MAX_SCOPES] if scope is not None else ())


def plain_scopes(scopes: Iterable[str]) -> tuple[str, ...]:
    """Return the scopes that may stand in a command that users copy."""
    return tuple(one for one in scopes if _PLAIN_SCOPE.fullmatch(one))


async def find_resource(http: OAuthHttp, url: str) -> ProtectedResource:
    """Return the metadata of the MCP server at `url`. A server without metadata counts as its own authorization server,
    as in the first version of MCP. Raises AuthError.
    """
    asked = await http.get(url, reads=False)
    challenge = asked.challenge if asked.status == 401 else ""
    found, scope = _METADATA.search(challenge), _SCOPE.search(challenge)
    places = [found[1]] if found is not None else list(_resource_places(url))
    for place in places:
        require_reachable(place, url)
        answer = await http.get(place)
        if answer.is_success and answer.texts("authorization_servers"):
            return _resource(answer, url, scope[1] if scope is not None else None)
        if found is not None:
            raise AuthError("the MCP server's metadata names no authorization server")
    return ProtectedResource(url, origin(url) or url, tuple(scope[1].split()) if scope is not None else ())


async def find_authorization_server(http: OAuthHttp, issuer: str, url: str) -> AuthorizationServer:
    """Return the metadata of the authorization server for the MCP server at `url`. Raises AuthError, also if it lacks
    PKCE with S256.
    """
    for place in _server_places(issuer):
        answer = await http.get(place)
        if answer.is_success and answer.text("token_endpoint") is not None:
            return _server(answer, issuer, url)
    raise AuthError("the authorization server of the MCP server does not describe itself")


def require_reachable(place: str, url: str) -> None:
    """Raise AuthError for an address without encryption, unless both the address and the MCP server are on this
    machine.
    """
    if not is_safe_url(place) or (place.startswith("http://") and not url.startswith("http://")):
        raise AuthError("the MCP server leads to an address that is not safe")


def covers(resource: str, url: str) -> bool:
    """Return whether `resource`, from the metadata, is the server at `url` or contains it."""
    if not is_safe_url(resource):
        return False
    theirs, ours = urlsplit(resource), urlsplit(url)
    path = theirs.path.rstrip("/")
    inside = ours.path.rstrip("/") == path or ours.path.startswith(f"{path}/")
    return origin(resource) == origin(url) and inside and not theirs.query


def _resource(answer: OAuthAnswer, url: str, challenged: str | None) -> ProtectedResource:
    resource, issuer = answer.text("resource") or url, answer.texts("authorization_servers")[0]
    if not covers(resource, url):
        raise AuthError("the MCP server's metadata are those of another server")
    require_reachable(issuer, url)
    scopes = challenged.split() if challenged is not None else answer.texts("scopes_supported")
    return ProtectedResource(resource, issuer, tuple(scopes[:MAX_SCOPES]))


def _server(answer: OAuthAnswer, issuer: str, url: str) -> AuthorizationServer:
    named = answer.text("issuer")
    if named is None or named.rstrip("/") != issuer.rstrip("/"):
        raise AuthError("the metadata of the authorization server are those of another one")
    if "S256" not in answer.texts("code_challenge_methods_supported"):
        raise AuthError("the authorization server does not support PKCE with S256")
    authorize, token = answer.text("authorization_endpoint"), answer.text("token_endpoint")
    register = answer.text("registration_endpoint")
    for endpoint in (authorize, token, register):
        if endpoint is not None:
            require_reachable(endpoint, url)
    if authorize is None or token is None:
        raise AuthError("the authorization server has no logins through the browser")
    names_issuer = answer.fields.get("authorization_response_iss_parameter_supported") is True
    offline = OFFLINE_ACCESS in answer.texts("scopes_supported")
    methods = answer.texts("token_endpoint_auth_methods_supported") or ("client_secret_basic",)
    in_header = "client_secret_basic" in methods and "client_secret_post" not in methods
    return AuthorizationServer(named, authorize, token, register, names_issuer, offline, in_header)


def _resource_places(url: str) -> Iterator[str]:
    parts = urlsplit(url)
    path = parts.path.rstrip("/")
    if path:
        yield urlunsplit((parts.scheme, parts.netloc, RESOURCE + path, parts.query, ""))
    yield urlunsplit((parts.scheme, parts.netloc, RESOURCE, "", ""))


def _server_places(issuer: str) -> Iterator[str]:
    parts = urlsplit(issuer)
    path = parts.path.rstrip("/")
    for known in SERVERS:
        yield urlunsplit((parts.scheme, parts.netloc, known + path, "", ""))
    if path:
        yield urlunsplit((parts.scheme, parts.netloc, path + SERVERS[1], "", ""))


CLIENT_NAME = "app-server"
MAX_TOKEN = 64 * 1024


class McpLoginOver(AuthError):
    """The authorization server no longer accepts the refresh token: the user has to log in again."""


class OAuthClient(Redacted, frozen=True):
    """The registration of this program at an authorization server."""

    HIDDEN = ("secret",)
    id: str
    secret: str | None = None
    in_header: bool = False
    """Whether the secret is sent in the header `Authorization`, and not in the form."""


async def register(http: OAuthHttp, server: AuthorizationServer, redirect: str) -> OAuthClient:
    """Register this client (RFC 7591). Raises AuthError."""
    if server.registration_endpoint is None:
        raise AuthError(
            "the authorization server registers no clients by itself: register one there, and set `oauth.client_id`"
        )
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
        raise AuthError(f"the authorization server did not register this client ({answer.outcome})")
    return OAuthClient(id, answer.text("client_secret"))


async def exchange(
    http: OAuthHttp,
    token_endpoint: str,
    client: OAuthClient,
    form: Mapping[str, str],
) -> OAuthAnswer:
    """Exchange a code or a refresh token. Raises AuthError, and McpLoginOver if a retry cannot succeed."""
    own, headers = {"client_id": client.id}, {}
    if client.secret is not None and client.in_header:
        pair = f"{quote(client.id, safe='')}:{quote(client.secret, safe='')}"
        own, headers = {}, {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
    elif client.secret is not None:
        own["client_secret"] = client.secret
    answer = await http.post_form(token_endpoint, {**form, **own}, headers=headers)
    if not answer.is_success:
        kind = McpLoginOver if answer.fields.get("error") == "invalid_grant" else AuthError
        raise kind(f"the authorization server gave no token ({answer.outcome})")
    token, token_type = answer.text("access_token"), answer.text("token_type") or "bearer"
    if token is None or token_type.lower() != "bearer" or not is_header_safe(token):
        raise AuthError("the authorization server answered without a bearer token")
    return answer


def is_header_safe(token: str) -> bool:
    return token.isascii() and token.isprintable() and " " not in token and len(token) <= MAX_TOKEN
