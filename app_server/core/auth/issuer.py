"""Requests to the OAuth issuer: exchange a code, exchange an id token for an API key, refresh, revoke.

`issuer_http`, which makes the requests, is loaded with the first one, because most servers never make one. Errors
contain the status and the issuer's error code, never a token or the body, which may contain one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
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
from app_server.core.lazy import Lazy
from app_server.core.threads import run_in_thread
from protocol.base import Json

if TYPE_CHECKING:
    from app_server.core.auth.issuer_http import IssuerResponse, PostToIssuer

GONE = frozenset(
    {"refresh_token_expired", "refresh_token_reused", "refresh_token_invalidated", "invalid_grant"}
)
"""Error codes after which no later attempt can succeed."""


class LoginExpiredError(AuthError):
    """The issuer no longer accepts the refresh token: the user has to log in again."""


def _load_post() -> PostToIssuer:
    from app_server.core.auth.issuer_http import post_to_issuer  # noqa: PLC0415 - imports httpx

    return post_to_issuer


_POST = Lazy(_load_post)


class Issuer:
    """One OAuth issuer. `env` is the user's environment, which names proxies and certificates."""

    def __init__(self, base_url: str | None, env: Mapping[str, str]) -> None:
        self._base_url = (base_url or DEFAULT_ISSUER).rstrip("/")
        self._env = env

    @property
    def base_url(self) -> str:
        """Raises AuthError if the configured URL is not allowed for logins."""
        if not is_issuer_url(self._base_url):
            raise AuthError(f"{ISSUER_VARIABLE} must be an https address, or an http one of this machine")
        return self._base_url

    async def exchange_code(self, code: str, verifier: str, port: int) -> Tokens:
        response = await self._token_request(
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
            _text(response, key) for key in ("id_token", "access_token", "refresh_token")
        )
        if id_token is None or access_token is None or refresh_token is None:
            raise AuthError("the login server answered without the tokens of a login")
        return Tokens(id_token=id_token, access_token=access_token, refresh_token=refresh_token)

    async def exchange_api_key(self, id_token: str) -> str | None:
        """An API key for the user's organisation; None if the issuer returns none, as for most accounts."""
        try:
            response = await self._token_request(
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
        return _text(response, "access_token")

    async def refresh(self, tokens: Tokens) -> Tokens:
        """New tokens; values that the response omits stay. Raises LoginExpiredError, or AuthError if a retry may
        succeed.
        """
        response = await self._token_request(
            "the refresh token",
            json_fields={
                "client_id": CLIENT_ID,
                "grant_type": "refresh_token",
                "refresh_token": tokens.refresh_token,
                "scope": "openid profile email",
            },
        )
        return Tokens(
            id_token=_text(response, "id_token") or tokens.id_token,
            access_token=_text(response, "access_token") or tokens.access_token,
            refresh_token=_text(response, "refresh_token") or tokens.refresh_token,
            account_id=tokens.account_id,
        )

    async def revoke(self, refresh_token: str) -> None:
        """Revokes the login at the issuer."""
        form = {"token": refresh_token, "token_type_hint": "refresh_token", "client_id": CLIENT_ID}
        response = await self._post("/oauth/revoke", form=form)
        if response.status >= 400:
            raise AuthError(f"the login server did not revoke the login (status {response.status})")

    async def _token_request(
        self,
        what: str,
        *,
        form: Mapping[str, str] | None = None,
        json_fields: Mapping[str, str] | None = None,
    ) -> Mapping[str, Json]:
        response = await self._post("/oauth/token", form=form, json_fields=json_fields)
        if 200 <= response.status < 300:
            return _object(response.body)
        code = _error_code(_object(response.body))
        problem = f"the login server refused {what} (status {response.status}{code and f', {code}'})"
        if code in GONE or (response.status == 401 and json_fields is not None):
            raise LoginExpiredError(f"{problem}; log in again")
        raise AuthError(problem)

    async def _post(
        self,
        path: str,
        *,
        form: Mapping[str, str] | None = None,
        json_fields: Mapping[str, str] | None = None,
    ) -> IssuerResponse:
        post = await run_in_thread(_POST.get)
        return await post(f"{self.base_url}{path}", self._env, form=form, json_fields=json_fields)


def _object(body: bytes) -> Mapping[str, Json]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _text(response: Mapping[str, Json], key: str) -> str | None:
    value = response.get(key)
    return value if isinstance(value, str) and value else None


def _error_code(response: Mapping[str, Json]) -> str:
    """The error code: OAuth sends `error: code`, this issuer also `error: {code}`. Empty if it does not look like a
    code.
    """
    error = response.get("error")
    code = error.get("code") if isinstance(error, dict) else error
    plain = isinstance(code, str) and len(code) <= 60 and code.replace("_", "").replace("-", "").isalnum()
    return str(code) if plain else ""
