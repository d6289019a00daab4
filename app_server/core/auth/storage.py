"""Stores credentials in auth.json in the home, and nowhere else.

The file is reread on each use, so that changes by other servers and programs take effect at once. Writes are atomic,
and only the owner can read the file. The `repr` of these types contains no secrets.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from app_server.core import remedies
from app_server.core.config.safe_file import (
    UnreadableFileError,
    read_regular_file,
    sync_folder,
    write_file_atomically,
)
from app_server.core.errors import AuthError
from protocol.structs import Discreet

if TYPE_CHECKING:
    from protocol.structs import Json

AUTH_FILE = "auth.json"
FILE_MODE = 0o600
MAX_BYTES = 1024 * 1024

logger = logging.getLogger(__name__)


class Tokens(Discreet, frozen=True, kw_only=True):
    """The tokens of a ChatGPT login."""

    HIDDEN = ("id_token", "access_token", "refresh_token")
    id_token: str
    access_token: str
    refresh_token: str
    account_id: str | None = None


class StoredAuth(Discreet, frozen=True, kw_only=True):
    """The content of auth.json."""

    HIDDEN = ("api_key",)
    api_key: str | None = None
    tokens: Tokens | None = None
    last_refresh: datetime | None = None


def read_auth(home: Path) -> StoredAuth | None:
    """Return the stored credentials, or None. Logs that a file is damaged, never its content."""
    path = home / AUTH_FILE
    try:
        data = read_regular_file(path, MAX_BYTES)
    except UnreadableFileError as problem:
        logger.warning("%s is ignored: %s", path, problem)
        return None
    if data is None:
        return None
    try:
        return _decode(json.loads(data))
    except (ValueError, RecursionError):
        logger.warning("%s is ignored: it does not have the form of stored credentials", path)
        return None


def write_auth(home: Path, auth: StoredAuth) -> None:
    """Store credentials. If it raises AuthError, the previous credentials are unchanged."""
    path = home / AUTH_FILE
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_file_atomically(path, json.dumps(_encode(auth), indent=2).encode(), FILE_MODE)
    except OSError as error:
        problem = remedies.home_unwritable(str(home), (error.strerror or "unknown error").lower())
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
    if not isinstance(raw, dict):
        raise ValueError("not an object")
    tokens = raw.get("tokens")
    return StoredAuth(
        api_key=_optional(raw.get("OPENAI_API_KEY")),
        tokens=None if tokens is None else _decode_tokens(tokens),
        last_refresh=_decode_time(raw.get("last_refresh")),
    )


def _decode_tokens(raw: Json) -> Tokens:
    if not isinstance(raw, dict):
        raise ValueError("tokens: not an object")
    texts = [_optional(raw.get(key)) for key in ("id_token", "access_token", "refresh_token")]
    id_token, access_token, refresh_token = texts
    if access_token is None:
        raise ValueError("tokens: no access token")
    return Tokens(
        id_token=id_token or "",
        access_token=access_token,
        refresh_token=refresh_token or "",
        account_id=_optional(raw.get("account_id")),
    )


def _decode_time(raw: Json) -> datetime | None:
    text = _optional(raw)
    if text is None:
        return None
    time = datetime.fromisoformat(text)
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def _encode(auth: StoredAuth) -> dict[str, Json]:
    """Return the content of the file: always with the field of the API key, with the others only if known."""
    raw: dict[str, Json] = {"OPENAI_API_KEY": auth.api_key}
    if auth.tokens is not None:
        raw["tokens"] = {
            "id_token": auth.tokens.id_token,
            "access_token": auth.tokens.access_token,
            "refresh_token": auth.tokens.refresh_token,
            "account_id": auth.tokens.account_id,
        }
    if auth.last_refresh is not None:
        time = auth.last_refresh.astimezone(UTC)
        raw["last_refresh"] = time.isoformat(timespec="microseconds").replace("+00:00", "Z")
    return raw


def _optional(value: Json) -> str | None:
    if value is None or isinstance(value, str):
        return value or None
    raise ValueError("not a string")
