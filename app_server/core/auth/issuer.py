"""Requests to the OAuth issuer: exchange a code, exchange an id token for an API key, refresh, revoke.

`issuer_http`, which makes the requests, is loaded with the first one, because most servers never make one. Errors
contain the status and the issuer's error code, never a token or the body, which may contain one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from app_server.core.auth.authorize import (
    CLIENT_ID,
    DEFAULT_ISSUER,
    ISSUER_VARIABLE,
    is_issuer_url,
)
from app_server.core.auth.storage import Tokens
from app_server.core.errors import AuthError
from app_server.core.lazy import Lazy
from app_server.core.threads import run_in_thread
from protocol.base import Json
from protocol.records import dataclass

if TYPE_CHECKING:
    from app_server.core.auth.issuer_http import IssuerResponse, PostToIssuer

GONE = frozenset(
    {"refresh_token_expired", "refresh_token_reused", "refresh_token_invalidated", "invalid_grant"}
)
"""Error codes after which no later attempt can succeed."""


DEVICE_API = "/api/accounts/deviceauth"
MAX_USER_CODE = 64
INTERVAL_SECONDS = 5.0
SHORTEST_INTERVAL, LONGEST_INTERVAL = 0.05, 60.0


class LoginExpiredError(AuthError):
    """The issuer no longer accepts the refresh token: the user has to log in again."""


@dataclass(frozen=True, slots=True)
class DeviceCode:
    """What the user types, and by what the issuer knows this login."""

    id: str = field(repr=False)
    user_code: str = field(repr=False)
    interval_seconds: float
    """Between two questions whether the user has agreed."""


@dataclass(frozen=True, slots=True)
class DeviceGrant:
    """The user agreed; the code can be exchanged once. The issuer made the secrets of PKCE itself."""

    code: str = field(repr=False)
    verifier: str = field(repr=False)
    challenge: str = field(repr=False)


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

    @property
    def device_page(self) -> str:
        """Where the user types the code of a device."""
        return f"{self.base_url}/codex/device"

    @property
    def device_redirect(self) -> str:
        return f"{self.base_url}/deviceauth/callback"

    async def request_device_code(self) -> DeviceCode:
        response = await self._post(f"{DEVICE_API}/usercode", json_fields={"client_id": CLIENT_ID})
        if response.status == 404:
            raise AuthError("the login server has no logins with a device code; use the browser login")
        answer = _object(response.body)
        if not 200 <= response.status < 300:
            code = _error_code(answer)
            raise AuthError(
                f"the login server gave no device code (status {response.status}{code and f', {code}'})"
            )
        id, shown = _text(answer, "device_auth_id"), _text(answer, "user_code") or _text(answer, "usercode")
        if id is None or shown is None or len(shown) > MAX_USER_CODE or not shown.isprintable():
            raise AuthError("the login server answered without a device code")
        return DeviceCode(id, shown, _interval(answer.get("interval")))

    async def poll_device_code(self, code: DeviceCode) -> DeviceGrant | None:
        """None while the user has not agreed. Raises AuthError if there is no sense in asking again."""
        response = await self._post(
            f"{DEVICE_API}/token", json_fields={"device_auth_id": code.id, "user_code": code.user_code}
        )
        if response.status in (403, 404):
            return None
        answer = _object(response.body)
        if not 200 <= response.status < 300:
            word = _error_code(answer)
            raise AuthError(
                f"the login server refused the device (status {response.status}{word and f', {word}'})"
            )
        granted, verifier, challenge = (
            _text(answer, key) for key in ("authorization_code", "code_verifier", "code_challenge")
        )
        if granted is None or verifier is None or challenge is None:
            raise AuthError("the login server answered without the code of a login")
        return DeviceGrant(granted, verifier, challenge)

    async def exchange_code(self, code: str, verifier: str, redirect: str) -> Tokens:
        response = await self._token_request(
            "the login code",
            form={
                "grant_type": "authorization_code",
                "code": code,
                "redirect_uri": redirect,
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


def _interval(value: Json) -> float:
    """Seconds, which this issuer writes as a text."""
    try:
        seconds = float(value) if isinstance(value, str | int | float) else INTERVAL_SECONDS
    except ValueError:
        return INTERVAL_SECONDS
    return min(max(seconds, SHORTEST_INTERVAL), LONGEST_INTERVAL) if seconds == seconds else INTERVAL_SECONDS


def _error_code(response: Mapping[str, Json]) -> str:
    """The error code: OAuth sends `error: code`, this issuer also `error: {code}`. Empty if it does not look like a
    code.
    """
    error = response.get("error")
    code = error.get("code") if isinstance(error, dict) else error
    plain = isinstance(code, str) and len(code) <= 60 and code.replace("_", "").replace("-", "").isalnum()
    return str(code) if plain else ""
