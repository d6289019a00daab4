"""Requests to the OAuth issuer: exchange a code, trade an id token for an API key, refresh, revoke.

httpx is imported when the first request is made, because most servers never make one. Errors carry the
status and the issuer's error code; never a token, and never the body, which may hold one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from app_server.core.auth.authorize import (
    CLIENT_ID,
    DEFAULT_ISSUER,
    ISSUER_VARIABLE,
    is_issuer_url,
    redirect_uri,
)
from app_server.core.auth.storage import Tokens
from app_server.core.errors import AuthError
from protocol.base import Json

if TYPE_CHECKING:
    import httpx

REQUEST_SECONDS = 30.0
"""Until an answer; the issuer answers in well under a second."""

GONE = frozenset(
    {"refresh_token_expired", "refresh_token_reused", "refresh_token_invalidated", "invalid_grant"}
)
"""Error codes with which no later attempt can succeed."""


class LoginExpiredError(AuthError):
    """The issuer no longer accepts the refresh token: the user has to log in again."""


class Issuer:
    """One OAuth issuer. `client` makes an HTTP client; a test may pass its own."""

    def __init__(
        self, base_url: str | None = None, client: Callable[[], httpx.AsyncClient] | None = None
    ) -> None:
        self._base_url = (base_url or DEFAULT_ISSUER).rstrip("/")
        self._new_client = client

    @property
    def base_url(self) -> str:
        """Raises AuthError where what was configured is no place for a login."""
        if not is_issuer_url(self._base_url):
            raise AuthError(f"{ISSUER_VARIABLE} must be an https address, or an http one of this machine")
        return self._base_url

    async def exchange_code(self, code: str, verifier: str, port: int) -> Tokens:
        answer = await self._token_request(
            "the login code",
            form={
                "grant_type": "authorization_code",
                "code": code,
                "redirect_uri": redirect_uri(port),
                "client_id": CLIENT_ID,
                "code_verifier": verifier,
            },
        )
        id_token, access_token, refresh_token = (
            _text(answer, key) for key in ("id_token", "access_token", "refresh_token")
        )
        if id_token is None or access_token is None or refresh_token is None:
            raise AuthError("the login server answered without the tokens of a login")
        return Tokens(id_token=id_token, access_token=access_token, refresh_token=refresh_token)

    async def exchange_api_key(self, id_token: str) -> str | None:
        """An API key for the user's organisation, or None where the issuer gives none: most accounts have
        none.
        """
        try:
            answer = await self._token_request(
                "the id token",
                form={
                    "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
                    "client_id": CLIENT_ID,
                    "requested_token": "openai-api-key",
                    "subject_token": id_token,
                    "subject_token_type": "urn:ietf:params:oauth:token-type:id_token",
                },
            )
        except AuthError:
            return None
        return _text(answer, "access_token")

    async def refresh(self, tokens: Tokens) -> Tokens:
        """New tokens; what the answer leaves out stays. Raises LoginExpiredError, or AuthError if it may
        yet work.
        """
        answer = await self._token_request(
            "the refresh token",
            json={
                "client_id": CLIENT_ID,
                "grant_type": "refresh_token",
                "refresh_token": tokens.refresh_token,
                "scope": "openid profile email",
            },
        )
        return Tokens(
            id_token=_text(answer, "id_token") or tokens.id_token,
            access_token=_text(answer, "access_token") or tokens.access_token,
            refresh_token=_text(answer, "refresh_token") or tokens.refresh_token,
            account_id=tokens.account_id,
        )

    async def revoke(self, refresh_token: str) -> None:
        """Tell the issuer that the login is over."""
        form = {"token": refresh_token, "token_type_hint": "refresh_token", "client_id": CLIENT_ID}
        async with self._client() as client:
            answer = await client.post(f"{self.base_url}/oauth/revoke", data=form)
        if answer.is_error:
            raise AuthError(f"the login server did not revoke the login (status {answer.status_code})")

    async def _token_request(
        self, what: str, *, form: Mapping[str, str] | None = None, json: Mapping[str, str] | None = None
    ) -> Mapping[str, Json]:
        async with self._client() as client:
            answer = await client.post(f"{self.base_url}/oauth/token", data=form, json=json)
        if answer.is_success:
            return _object(answer)
        code = _error_code(_object(answer))
        problem = f"the login server refused {what} (status {answer.status_code}{code and f', {code}'})"
        if code in GONE or (answer.status_code == 401 and json is not None):
            raise LoginExpiredError(f"{problem}; log in again")
        raise AuthError(problem)

    @asynccontextmanager
    async def _client(self) -> AsyncIterator[httpx.AsyncClient]:
        """A client for one request. What goes wrong on the way becomes an error without request or answer
        in it.
        """
        import httpx  # noqa: PLC0415 - slow to import, and needed by logins and refreshes only

        new = self._new_client or (lambda: httpx.AsyncClient(timeout=REQUEST_SECONDS, follow_redirects=False))
        try:
            async with new() as client:
                yield client
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise AuthError(f"the login server cannot be reached ({type(error).__name__})") from None


def _object(answer: httpx.Response) -> Mapping[str, Json]:
    try:
        body = answer.json()
    except (ValueError, RecursionError):
        return {}
    return body if isinstance(body, dict) else {}


def _text(answer: Mapping[str, Json], key: str) -> str | None:
    value = answer.get(key)
    return value if isinstance(value, str) and value else None


def _error_code(answer: Mapping[str, Json]) -> str:
    """OAuth says `error: code`, this issuer also `error: {code}`. Only something that looks like a code is
    shown.
    """
    error = answer.get("error")
    code = error.get("code") if isinstance(error, dict) else error
    plain = isinstance(code, str) and len(code) <= 60 and code.replace("_", "").replace("-", "").isalnum()
    return str(code) if plain else ""
