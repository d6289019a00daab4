"""Tokens of MCP servers, in `.credentials.json` of the home: the file and the form of codex.

The file is read again for each use, so that other servers' logins count at once. Writes are atomic and keep what they
do not understand. Only the owner can read the file; the `repr` of these types contains no secrets.
"""

from __future__ import annotations

import hashlib
import json
import logging
from contextlib import suppress
from pathlib import Path

import msgspec

from app_server.core.auth.storage import filled
from app_server.core.config.safe_file import UnreadableFileError, read_regular_file, write_file_atomically
from app_server.core.errors import AuthError
from protocol.structs import Discreet, Json

CREDENTIALS_FILE = ".credentials.json"
FILE_MODE = 0o600
MAX_BYTES = 4 * 1024 * 1024

logger = logging.getLogger(__name__)


NAMES = {"server": "server_name", "url": "server_url", "expires_at_ms": "expires_at"}
"""Fields that codex calls otherwise."""

OURS = ("token_endpoint", "resource", "client_secret")
"""Fields that codex does not have; they are left out where nothing is known."""


class McpTokens(Discreet, frozen=True, kw_only=True, rename=NAMES):
    """A login at one MCP server."""

    HIDDEN = ("access_token", "refresh_token", "client_secret")
    server: str
    url: str
    client_id: str
    access_token: str
    refresh_token: str | None = None
    expires_at_ms: int | None = None
    """Since 1970; None: not known."""
    scopes: tuple[str, ...] = ()
    token_endpoint: str | None = None
    """Where it is refreshed; None: of a login that codex stored, where that has to be found first."""
    resource: str | None = None
    client_secret: str | None = None


def read_mcp_tokens(home: Path, server: str, url: str) -> McpTokens | None:
    """Return the tokens stored for exactly this server name and address."""
    try:
        entries = _read(home)
    except AuthError as problem:
        logger.warning("%s", problem)
        return None
    for entry in entries.values():
        if _is_of(entry, server, url):
            with suppress(msgspec.ValidationError):
                return msgspec.convert(filled(entry), McpTokens)
    return None


def write_mcp_tokens(home: Path, tokens: McpTokens) -> None:
    """Store the tokens of one server. Raises AuthError; then what was stored before is unchanged."""
    path = home / CREDENTIALS_FILE
    written = msgspec.to_builtins(tokens)
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        entries = {
            key: entry for key, entry in _read(home).items() if not _is_of(entry, tokens.server, tokens.url)
        }
        entries[_key(tokens)] = {
            key: value for key, value in written.items() if value is not None or key not in OURS
        }
        write_file_atomically(path, json.dumps(entries, indent=2).encode(), FILE_MODE)
    except OSError as error:
        raise AuthError(f"credentials cannot be stored in {path}: {error.strerror}") from error


def _is_of(entry: Json, server: str, url: str) -> bool:
    return isinstance(entry, dict) and (entry.get("server_name"), entry.get("server_url")) == (server, url)


def _read(home: Path) -> dict[str, Json]:
    """Read the file. Raises AuthError for what is no such file; its text says nothing of the content."""
    path = home / CREDENTIALS_FILE
    try:
        data = read_regular_file(path, MAX_BYTES)
        value = {} if data is None else json.loads(data)
    except UnreadableFileError as problem:
        raise AuthError(f"{path} cannot be used: {problem}") from None
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise AuthError(f"{path} cannot be used: it does not have the form of stored credentials")
    return value


def _key(tokens: McpTokens) -> str:
    """Return the key of an entry, as codex makes it."""
    about = json.dumps({"headers": {}, "type": "http", "url": tokens.url}, separators=(",", ":"))
    return f"{tokens.server}|{hashlib.sha256(about.encode()).hexdigest()[:16]}"
