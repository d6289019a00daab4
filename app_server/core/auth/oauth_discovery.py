"""Who gives tokens for an MCP server: the metadata of the server (RFC 9728), then of its authorization server
(RFC 8414, OpenID Connect).

Everything that is found comes from the network: addresses are checked before anything is sent there, and what says that
it speaks for another server is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import urlsplit, urlunsplit

from app_server.core.auth.oauth_http import OAuthAnswer, OAuthHttp, is_safe_url
from app_server.core.errors import AuthError
from protocol.records import dataclass

RESOURCE = "/.well-known/oauth-protected-resource"
SERVERS = ("/.well-known/oauth-authorization-server", "/.well-known/openid-configuration")
MAX_SCOPES = 100
_METADATA = re.compile(r'resource_metadata\s*=\s*"([^"\\]{1,2048})"', re.IGNORECASE)
_SCOPE = re.compile(r'(?<![a-z_])scope\s*=\s*"([^"\\]{1,2048})"', re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ProtectedResource:
    """An MCP server, as it describes itself."""

    resource: str
    issuer: str
    """Its first authorization server."""
    scopes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AuthorizationServer:
    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    registration_endpoint: str | None
    names_issuer: bool
    """Whether its answers through the browser name it (RFC 9207)."""


async def find_resource(http: OAuthHttp, url: str) -> ProtectedResource:
    """Of the MCP server at `url`. One that describes nothing is taken for its own authorization server, as the first
    version of MCP had it. Raises AuthError.
    """
    status, challenge = await http.challenge(url)
    found = _METADATA.search(challenge) if status == 401 else None
    scope = _SCOPE.search(challenge) if status == 401 else None
    places = [found[1]] if found is not None else list(_resource_places(url))
    for place in places:
        require_reachable(place, url)
        answer = await http.get(place)
        if answer.is_success and answer.texts("authorization_servers"):
            return _resource(answer, url, scope[1] if scope is not None else None)
        if found is not None:
            raise AuthError("the MCP server's metadata names no authorization server")
    return ProtectedResource(url, _origin(url), tuple(scope[1].split()) if scope is not None else ())


async def find_authorization_server(http: OAuthHttp, issuer: str, url: str) -> AuthorizationServer:
    """For the MCP server at `url`. Raises AuthError, also for one that does not have PKCE with S256."""
    for place in _server_places(issuer):
        answer = await http.get(place)
        if answer.is_success and answer.text("token_endpoint") is not None:
            return _server(answer, issuer, url)
    raise AuthError("the authorization server of the MCP server does not describe itself")


def require_reachable(place: str, url: str) -> None:
    """Raises AuthError for an address without encryption. One of this machine is for servers of this machine."""
    if not is_safe_url(place) or (place.startswith("http://") and not url.startswith("http://")):
        raise AuthError("the MCP server leads to an address that is not safe")


def covers(resource: str, url: str) -> bool:
    """Whether `resource`, as metadata name it, is the server at `url` or what that is a part of."""
    theirs, ours = urlsplit(resource), urlsplit(url)
    path = theirs.path.rstrip("/")
    inside = ours.path.rstrip("/") == path or ours.path.startswith(f"{path}/")
    return _origin(resource) == _origin(url) and inside and not theirs.query


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
    return AuthorizationServer(named, authorize, token, register, names_issuer)


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


def _origin(url: str) -> str:
    parts = urlsplit(url)
    port = {"http": 80, "https": 443}.get(parts.scheme) if parts.port is None else parts.port
    default = {"http": 80, "https": 443}.get(parts.scheme) == port
    host = parts.hostname or ""
    shown = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{shown}" + ("" if default else f":{port}")
