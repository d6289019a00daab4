"""The file of the login, `auth.json` in the home, where it is stored and nowhere else.

It is reread on each use, so that changes by other servers and programs take effect at once. Writes are atomic, and only
the owner can read the file. `credentials` says what it holds.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC
from pathlib import Path

import msgspec

from app_server.core import remedies
from app_server.core.auth.credentials import API_KEY, StoredAuth
from app_server.core.config.safe_file import (
    UnreadableFileError,
    read_regular_file,
    sync_folder,
    write_file_atomically,
)
from app_server.core.errors import AuthError
from protocol.structs import Json, replace

AUTH_FILE = "auth.json"
FILE_MODE = 0o600
MAX_BYTES = 1024 * 1024

logger = logging.getLogger(__name__)


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
    """Read the content of the file. Raises ValueError."""
    known = filled(raw)
    if "tokens" in known:
        known["tokens"] = filled(known["tokens"])
    stored = msgspec.convert(known, StoredAuth)
    time = stored.last_refresh
    return stored if time is None or time.tzinfo else replace(stored, last_refresh=time.replace(tzinfo=UTC))


def filled(table: Json) -> dict[str, Json]:
    """Return the fields of stored credentials that say something: neither null nor an empty text. Raises ValueError."""
    if not isinstance(table, dict):
        raise ValueError("not an object")
    return {key: value for key, value in table.items() if value not in (None, "")}


def _encode(auth: StoredAuth) -> dict[str, Json]:
    raw = msgspec.to_builtins(auth)
    return {key: value for key, value in raw.items() if value is not None or key == API_KEY}
