"""Sends requests to the OAuth issuer: exchange a code, exchange an id token for an API key, refresh, revoke.

Errors contain the status and the issuer's error code, never a token or the body, which may contain one.
"""

from __future__ import annotations

from collections.abc import Mapping

from app_server.engine.auth.browser import CLIENT_ID, DEFAULT_ISSUER, ISSUER_VARIABLE, is_safe_url
from app_server.engine.auth.credentials import Tokens
from app_server.engine.auth.oauth_http import OAuthAnswer, OAuthHttp
from app_server.engine.support.engine_errors import AuthError
from app_server_protocol.encoding import Json
from app_server_protocol.values import Redacted

WHOM = "the login server"

GONE = frozenset(
    {"refresh_token_expired", "refresh_token_reused", "refresh_token_invalidated", "invalid_grant"}
)
"""Error codes after which no retry can succeed."""


DEVICE_API = "/api/accounts/deviceauth"
MAX_USER_CODE = 64
INTERVAL_SECONDS = 5.0
SHORTEST_INTERVAL, LONGEST_INTERVAL = 0.05, 60.0


class LoginExpiredError(AuthError):
    """The issuer no longer accepts the refresh token: the user has to log in again."""


class DeviceCode(Redacted, frozen=True):
    """A code that the user types, and the id by which the issuer knows this login."""

    HIDDEN = ("id", "user_code")
    id: str
    user_code: str
    interval_seconds: float
    """Interval between two requests that check whether the user has agreed, in seconds."""


class DeviceGrant(Redacted, frozen=True):
    """A code that the issuer sends after the user agreed, and that can be exchanged once. The issuer made the PKCE
    secrets itself.
    """

    HIDDEN = ("code", "verifier", "challenge")
    code: str
    verifier: str
    challenge: str


class Issuer:
    """One OAuth issuer. `env` is the user's environment, which names proxies and certificates."""

    def __init__(self, base_url: str | None, env: Mapping[str, str]) -> None:
        self._base_url = (base_url or DEFAULT_ISSUER).rstrip("/")
        self._http = OAuthHttp(env)

    @property
    def base_url(self) -> str:
        """The issuer's address. Raises AuthError if it is not allowed for logins."""
        if not is_safe_url(self._base_url) or "?" in self._base_url:
            raise AuthError(f"{ISSUER_VARIABLE} must be an https address, or an http one of this machine")
        return self._base_url

    @property
    def device_page(self) -> str:
        """Address of the page on which the user types a device code."""
        return f"{self.base_url}/codex/device"

    @property
    def device_redirect(self) -> str:
        return f"{self.base_url}/deviceauth/callback"

    async def request_device_code(self) -> DeviceCode:
        """Request a code that the user types on another device. Raises AuthError."""
        answer = await self._post_json(f"{DEVICE_API}/usercode", {"client_id": CLIENT_ID})
        if answer.status == 404:
            raise AuthError("the login server has no logins with a device code; use the browser login")
        if not answer.is_success:
            raise AuthError(f"the login server gave no device code ({answer.outcome})")
        id, shown = answer.text("device_auth_id"), answer.text("user_code") or answer.text("usercode")
        if id is None or shown is None or len(shown) > MAX_USER_CODE or not shown.isprintable():
            raise AuthError("the login server answered without a device code")
        return DeviceCode(id, shown, _interval(answer.fields.get("interval")))

    async def poll_device_code(self, code: DeviceCode) -> DeviceGrant | None:
        """Return the grant of the user; None until the user has agreed. Raises AuthError if a retry cannot succeed."""
        about = {"device_auth_id": code.id, "user_code": code.user_code}
        answer = await self._post_json(f"{DEVICE_API}/token", about)
        if answer.status in (403, 404):
            return None
        if not answer.is_success:
            raise AuthError(f"the login server refused the device ({answer.outcome})")
        granted, verifier, challenge = map(
            answer.text, ("authorization_code", "code_verifier", "code_challenge")
        )
        if granted is None or verifier is None or challenge is None:
            raise AuthError("the login server answered without the code of a login")
        return DeviceGrant(granted, verifier, challenge)

    async def exchange_code(self, code: str, verifier: str, redirect: str) -> Tokens:
        """Exchange the code of a login for its tokens. Raises AuthError."""
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect,
            "client_id": CLIENT_ID,
            "code_verifier": verifier,
        }
        answer = _granted(await self._post_form("/oauth/token", form), "the login code")
        id_token, access_token, refresh_token = map(
            answer.text, ("id_token", "access_token", "refresh_token")
        )
        if id_token is None or access_token is None or refresh_token is None:
            raise AuthError("the login server answered without the tokens of a login")
        return Tokens(id_token=id_token, access_token=access_token, refresh_token=refresh_token)

    async def exchange_api_key(self, id_token: str) -> str | None:
        """Return an API key for the user's organisation; None if the issuer gives none, as for most accounts."""
        form = {
            "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
            "client_id": CLIENT_ID,
            "requested_token": "openai-api-key",
            "subject_token": id_token,
            "subject_token_type": "urn:ietf:params:oauth:token-type:id_token",
        }
        try:
            return _granted(await self._post_form("/oauth/token", form), "the id token").text("access_token")
        except AuthError:
            return None

    async def refresh(self, tokens: Tokens) -> Tokens:
        """Return refreshed tokens. Values that the response omits stay. Raises LoginExpiredError, or AuthError if a
        retry may succeed.
        """
        about = {
            "client_id": CLIENT_ID,
            "grant_type": "refresh_token",
            "refresh_token": tokens.refresh_token,
            "scope": "openid profile email",
        }
        answer = await self._post_json("/oauth/token", about)
        if answer.status == 401:
            raise _over(answer, "the refresh token")
        _granted(answer, "the refresh token")
        return Tokens(
            id_token=answer.text("id_token") or tokens.id_token,
            access_token=answer.text("access_token") or tokens.access_token,
            refresh_token=answer.text("refresh_token") or tokens.refresh_token,
            account_id=tokens.account_id,
        )

    async def revoke(self, refresh_token: str) -> None:
        """Revoke the login at the issuer. Raises AuthError."""
        form = {"token": refresh_token, "token_type_hint": "refresh_token", "client_id": CLIENT_ID}
        answer = await self._post_form("/oauth/revoke", form)
        if answer.status >= 400:
            raise AuthError(f"the login server did not revoke the login (status {answer.status})")

    async def _post_form(self, path: str, form: Mapping[str, str]) -> OAuthAnswer:
        return await self._http.post_form(f"{self.base_url}{path}", form, WHOM)

    async def _post_json(self, path: str, fields: Mapping[str, str]) -> OAuthAnswer:
        return await self._http.post_json(f"{self.base_url}{path}", fields, WHOM)


def _granted(answer: OAuthAnswer, what: str) -> OAuthAnswer:
    """Return the answer to a request for tokens. Raises AuthError if it was refused."""
    if answer.is_success:
        return answer
    if answer.error_code in GONE:
        raise _over(answer, what)
    raise AuthError(f"the login server refused {what} ({answer.outcome})")


def _over(answer: OAuthAnswer, what: str) -> LoginExpiredError:
    return LoginExpiredError(f"the login server refused {what} ({answer.outcome}); log in again")


def _interval(value: Json) -> float:
    """Return an interval in seconds. The issuer writes it as a text."""
    try:
        seconds = float(value) if isinstance(value, str | int | float) else INTERVAL_SECONDS
    except ValueError:
        return INTERVAL_SECONDS
    return min(max(seconds, SHORTEST_INTERVAL), LONGEST_INTERVAL) if seconds == seconds else INTERVAL_SECONDS
