"""Tokens of MCP servers, in `.credentials.json` of the home: the file and the form of codex.

The file is read again for each use, so that other servers' logins count at once. Writes are atomic and keep what they
do not understand. Only the owner can read the file; the `repr` of these types contains no secrets.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable
from pathlib import Path

from app_server.core.config.safe_file import UnreadableFileError, read_regular_file, write_file_atomically
from app_server.core.errors import AuthError
from protocol.structs import Discreet, Json

CREDENTIALS_FILE = ".credentials.json"
FILE_MODE = 0o600
MAX_BYTES = 4 * 1024 * 1024

logger = logging.getLogger(__name__)


class McpTokens(Discreet, frozen=True, kw_only=True):
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
        if isinstance(entry, dict) and (entry.get("server_name"), entry.get("server_url")) == (server, url):
            return _decode(entry)
    return None


def write_mcp_tokens(home: Path, tokens: McpTokens) -> None:
    """Store the tokens of one server. Raises AuthError; then what was stored before is unchanged."""

    def replace(entries: dict[str, Json]) -> None:
        _drop(entries, tokens.server, tokens.url)
        entries[_key(tokens)] = _encode(tokens)

    _change(home, replace)


def _change(home: Path, change: Callable[[dict[str, Json]], None]) -> None:
    path = home / CREDENTIALS_FILE
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        entries = _read(home)
        change(entries)
        write_file_atomically(path, json.dumps(entries, indent=2).encode(), FILE_MODE)
    except OSError as error:
        raise AuthError(f"credentials cannot be stored in {path}: {error.strerror}") from error


def _drop(entries: dict[str, Json], server: str, url: str) -> None:
    for key, entry in list(entries.items()):
        if isinstance(entry, dict) and (entry.get("server_name"), entry.get("server_url")) == (server, url):
            del entries[key]


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


def _encode(tokens: McpTokens) -> dict[str, Json]:
    entry: dict[str, Json] = {
        "server_name": tokens.server,
        "server_url": tokens.url,
        "client_id": tokens.client_id,
        "access_token": tokens.access_token,
        "expires_at": tokens.expires_at_ms,
        "refresh_token": tokens.refresh_token,
        "scopes": list(tokens.scopes),
    }
    ours = {
        "token_endpoint": tokens.token_endpoint,
        "resource": tokens.resource,
        "client_secret": tokens.client_secret,
    }
    return entry | {key: value for key, value in ours.items() if value is not None}


def _decode(entry: dict[str, Json]) -> McpTokens | None:
    server, url, client, access = (
        _text(entry.get(key)) for key in ("server_name", "server_url", "client_id", "access_token")
    )
    if server is None or url is None or client is None or access is None:
        return None
    expires, scopes = entry.get("expires_at"), entry.get("scopes")
    return McpTokens(
        server=server,
        url=url,
        client_id=client,
        access_token=access,
        refresh_token=_text(entry.get("refresh_token")),
        expires_at_ms=expires if isinstance(expires, int) and not isinstance(expires, bool) else None,
        scopes=tuple(s for s in scopes if isinstance(s, str)) if isinstance(scopes, list) else (),
        token_endpoint=_text(entry.get("token_endpoint")),
        resource=_text(entry.get("resource")),
        client_secret=_text(entry.get("client_secret")),
    )


def _text(value: Json) -> str | None:
    return value if isinstance(value, str) and value else None
