"""The login at the model provider: the claims of its tokens, the restrictions by the settings, and its only file,
`auth.json` in the home.

The file is reread on each use, so that changes by other servers and programs take effect at once. Writes are atomic,
and only the owner can read it. The `repr` of these types contains no secrets.
"""

from __future__ import annotations

import base64
import binascii
import json
import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from app_server.engine.config.config_values import LoginSettings
from app_server.engine.config.safe_file import (
    UnreadableFileError,
    read_regular_file,
    sync_folder,
    write_file_atomically,
)
from app_server.engine.support import user_messages
from app_server.engine.support.engine_errors import AuthError, describe
from app_server_protocol.encoding import Json
from app_server_protocol.values import Redacted, replace

API_KEY = "OPENAI_API_KEY"
"""The field that a stored login always has."""


class Tokens(Redacted, frozen=True, kw_only=True):
    """The tokens of a ChatGPT login."""

    HIDDEN = ("id_token", "access_token", "refresh_token")
    id_token: str = ""
    access_token: str
    refresh_token: str = ""
    account_id: str | None = None


class StoredAuth(Redacted, frozen=True, kw_only=True, rename={"api_key": API_KEY}):
    """The content of auth.json."""

    HIDDEN = ("api_key",)
    api_key: str | None = None
    tokens: Tokens | None = None
    last_refresh: datetime | None = None


AUTH_CLAIM = "https://api.openai.com/auth"
PROFILE_CLAIM = "https://api.openai.com/profile"

MAX_TOKEN_CHARS = 64 * 1024
"""Maximum number of characters of a token. Real tokens have two or three thousand."""


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
    """Return the expiry time of a token in seconds since 1970; None if it has none."""
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
"""Time before its expiry at which a token is refreshed, in seconds: the requests of a turn may take minutes."""

REFRESH_INTERVAL = timedelta(days=8)
"""Interval at which tokens without an expiry time are refreshed."""


class AuthMethod(StrEnum):
    """Login methods. The values are those of the wire."""

    API_KEY = "apikey"
    CHATGPT = "chatgpt"


class LoginOutcome(Struct, frozen=True):
    """Outcome of a login attempt."""

    success: bool
    error: str | None = None


class Credentials(Redacted, frozen=True):
    """The credentials of a request to the model provider."""

    HIDDEN = ("bearer",)
    bearer: str
    account_id: str | None
    """Account of a ChatGPT login, which is sent in a header; None for other logins."""
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
    """Return the part of a stored login that the settings allow; else an API key from the environment."""
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
    """Return whether the tokens have to be refreshed before use."""
    if stored.tokens is None or stored.api_key is not None:
        return False
    end = expires_at(stored.tokens.access_token)
    if end is not None:
        return end - EXPIRY_MARGIN_SECONDS <= now.timestamp()
    return stored.last_refresh is None or now - stored.last_refresh >= REFRESH_INTERVAL


def has_ended(stored: StoredAuth, now: datetime) -> bool:
    """Return whether the only credentials are tokens that have expired."""
    if stored.tokens is None or stored.api_key is not None:
        return False
    end = expires_at(stored.tokens.access_token)
    return end is not None and end <= now.timestamp()


AUTH_FILE = "auth.json"
FILE_MODE = 0o600
MAX_BYTES = 4 * 1024 * 1024

logger = logging.getLogger(__name__)

Stored = TypeVar("Stored")


def read_auth(home: Path) -> StoredAuth | None:
    """Return the stored credentials; None if there are none. A damaged file is logged, but never its content."""
    try:
        return read_credentials_file(home / AUTH_FILE, _decode)
    except AuthError as problem:
        logger.warning("%s", problem)
        return None


def write_auth(home: Path, auth: StoredAuth) -> None:
    """Store credentials. If it raises AuthError, the previous credentials are unchanged."""
    write_credentials_file(home / AUTH_FILE, _encode(auth))


def read_credentials_file(path: Path, decode: Callable[[Json], Stored]) -> Stored | None:
    """Return the decoded content of a file of credentials; None if there is no file. Raises AuthError if the content
    has another form, also if `decode` raises ValueError; its message contains nothing of the content.
    """
    try:
        data = read_regular_file(path, MAX_BYTES)
        return None if data is None else decode(json.loads(data))
    except UnreadableFileError as problem:
        raise AuthError(f"{path} cannot be used: {problem}") from None
    except (ValueError, RecursionError):
        text = f"{path} cannot be used: it does not have the form of stored credentials"
        raise AuthError(text) from None


def write_credentials_file(path: Path, content: Mapping[str, Json]) -> None:
    """Replace a file of credentials. If it raises AuthError, the previous file is unchanged."""
    home = path.parent
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_file_atomically(path, json.dumps(content, indent=2).encode(), FILE_MODE)
    except OSError as error:
        problem = user_messages.home_unwritable(str(home), describe(error))
        raise AuthError(f"credentials cannot be stored in {path}: {problem}") from error


def delete_auth(home: Path) -> bool:
    """Delete the file; return whether it existed. Raises AuthError if it cannot be deleted."""
    path = home / AUTH_FILE
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise AuthError(f"{path} cannot be removed: {error.strerror}") from error
    sync_folder(home)
    return True


def _decode(raw: Json) -> StoredAuth:
    """Return the decoded content of the file. Raises ValueError."""
    known = filled(raw)
    if "tokens" in known:
        known["tokens"] = filled(known["tokens"])
    stored = msgspec.convert(known, StoredAuth)
    time = stored.last_refresh
    return stored if time is None or time.tzinfo else replace(stored, last_refresh=time.replace(tzinfo=UTC))


def filled(table: Json) -> dict[str, Json]:
    """Return the fields of stored credentials that have a value: neither null nor an empty text. Raises ValueError."""
    if not isinstance(table, dict):
        raise ValueError("not an object")
    return {key: value for key, value in table.items() if value not in (None, "")}


def _encode(auth: StoredAuth) -> dict[str, Json]:
    raw = msgspec.to_builtins(auth)
    return {key: value for key, value in raw.items() if value is not None or key == API_KEY}
