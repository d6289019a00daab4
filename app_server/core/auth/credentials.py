"""The login at the model provider as plain values: what is stored of it, the claims of its tokens, and which of it the
settings allow. Pure.

The `repr` of these types contains no secrets.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct

from app_server.core.config.types import LoginSettings
from app_server.core.errors import AuthError
from protocol.structs import Discreet, Json, replace

API_KEY = "OPENAI_API_KEY"
"""The field of a stored login that is always there."""


class Tokens(Discreet, frozen=True, kw_only=True):
    """The tokens of a ChatGPT login."""

    HIDDEN = ("id_token", "access_token", "refresh_token")
    id_token: str = ""
    access_token: str
    refresh_token: str = ""
    account_id: str | None = None


class StoredAuth(Discreet, frozen=True, kw_only=True, rename={"api_key": API_KEY}):
    """The content of auth.json."""

    HIDDEN = ("api_key",)
    api_key: str | None = None
    tokens: Tokens | None = None
    last_refresh: datetime | None = None


AUTH_CLAIM = "https://api.openai.com/auth"
PROFILE_CLAIM = "https://api.openai.com/profile"

MAX_TOKEN_CHARS = 64 * 1024
"""Real tokens have two or three thousand characters."""


class IdClaims(Struct, frozen=True):
    """The claims of an id token that this server uses."""

    email: str | None = None
    plan_type: str | None = None
    account_id: str | None = None


def read_id_token(token: str) -> IdClaims:
    claims = jwt_claims(token)
    auth = _mapping(claims.get(AUTH_CLAIM))
    profile = _mapping(claims.get(PROFILE_CLAIM))
    return IdClaims(
        email=_text(claims.get("email")) or _text(profile.get("email")),
        plan_type=_text(auth.get("chatgpt_plan_type")),
        account_id=_text(auth.get("chatgpt_account_id")),
    )


def expires_at(token: str) -> float | None:
    """Return the expiry time of a token in seconds since the epoch; None if it has none."""
    expiry = jwt_claims(token).get("exp")
    if isinstance(expiry, bool) or not isinstance(expiry, int | float):
        return None
    return float(expiry) if abs(expiry) < 1e12 else None


def jwt_claims(token: str) -> Mapping[str, Json]:
    parts = token.split(".")
    if len(parts) != 3 or len(token) > MAX_TOKEN_CHARS:
        return {}
    payload = parts[1]
    try:
        data = base64.b64decode(payload + "=" * (-len(payload) % 4), altchars=b"-_", validate=True)
        return _mapping(json.loads(data))
    except (binascii.Error, ValueError, RecursionError):
        return {}


def _mapping(value: Json) -> Mapping[str, Json]:
    return value if isinstance(value, dict) else {}


def _text(value: Json) -> str | None:
    return value if isinstance(value, str) and value else None


EXPIRY_MARGIN_SECONDS = 300.0
"""A token that expires sooner is refreshed before use: a turn's requests may take minutes."""

REFRESH_INTERVAL = timedelta(days=8)
"""Tokens without an expiry time are refreshed at this interval."""


class AuthMethod(StrEnum):
    """The values are those of the wire."""

    API_KEY = "apikey"
    CHATGPT = "chatgpt"


class LoginOutcome(Struct, frozen=True):
    """Outcome of an attempt to log in."""

    success: bool
    error: str | None = None


class Credentials(Discreet, frozen=True):
    """The credentials of a request to the model provider."""

    HIDDEN = ("bearer",)
    bearer: str
    account_id: str | None
    """For ChatGPT logins; sent in a header."""
    method: AuthMethod


def login_allowed(settings: LoginSettings, method: AuthMethod) -> bool:
    return settings.forced_method in (None, "api" if method is AuthMethod.API_KEY else "chatgpt")


def require_login_allowed(settings: LoginSettings, method: AuthMethod) -> None:
    """Check that the settings allow a login method. Raises AuthError."""
    if login_allowed(settings, method):
        return
    this, other = ("API key", "ChatGPT") if method is AuthMethod.API_KEY else ("ChatGPT", "API key")
    raise AuthError(f"{this} login is turned off by `forced_login_method`; use {other} login.")


def permitted(stored: StoredAuth, settings: LoginSettings, env_api_key: str | None) -> StoredAuth:
    """Return a stored login as far as the settings allow it, else an API key from the environment."""
    keys = login_allowed(settings, AuthMethod.API_KEY)
    if not keys:
        stored = replace(stored, api_key=None)
    if not login_allowed(settings, AuthMethod.CHATGPT) or not is_allowed_workspace(settings, stored.tokens):
        stored = replace(stored, tokens=None)
    if keys and stored.api_key is None and stored.tokens is None:
        return StoredAuth(api_key=env_api_key)
    return stored


def is_allowed_workspace(settings: LoginSettings, tokens: Tokens | None) -> bool:
    wanted = settings.workspace_id
    return tokens is None or wanted is None or account_of(tokens) == wanted


def account_of(tokens: Tokens) -> str | None:
    return tokens.account_id or read_id_token(tokens.id_token).account_id


def credentials_of(stored: StoredAuth) -> Credentials | None:
    if stored.api_key is not None:
        return Credentials(stored.api_key, None, AuthMethod.API_KEY)
    if stored.tokens is not None:
        return Credentials(stored.tokens.access_token, account_of(stored.tokens), AuthMethod.CHATGPT)
    return None


def is_ending(stored: StoredAuth, now: datetime) -> bool:
    """Return whether its tokens are to be refreshed before they are used."""
    if stored.tokens is None or stored.api_key is not None:
        return False
    end = expires_at(stored.tokens.access_token)
    if end is not None:
        return end - EXPIRY_MARGIN_SECONDS <= now.timestamp()
    return stored.last_refresh is None or now - stored.last_refresh >= REFRESH_INTERVAL


def has_ended(stored: StoredAuth, now: datetime) -> bool:
    """Return whether all that it has is tokens that are of no use any more."""
    if stored.tokens is None or stored.api_key is not None:
        return False
    end = expires_at(stored.tokens.access_token)
    return end is not None and end <= now.timestamp()
