"""The token of WebSocket clients: where it is kept, and what is compared with what a client brings.

Nothing but its SHA-256 is kept in memory. A file that others can read is no secret, so it is refused, not mended: who
read it before would still know the token.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from app_server.core.config.safe_file import UnreadableFileError, create_file_atomically, read_regular_file

TOKEN_FILE = "ws-token"
"""In the folder of the server's socket."""
TOKEN_BYTES = 32
MOST_BYTES = 4096
"""Of a file with a token."""
DIGEST_CHARACTERS = 64


class TokenRefused(Exception):
    """There is no token that keeps others out. The text is a sentence for the user."""


def token_digest(
    folder: Path, file: Path | None, sha256: str | None, random: Callable[[int], bytes]
) -> bytes:
    """Return the SHA-256 of the token: as given, of the named file, or of the file in `folder`, which is made with
    `random` bytes where it is not there yet. Raises TokenRefused.
    """
    if file is not None and sha256 is not None:
        raise TokenRefused("expected a file with the token or its SHA-256, got both")
    if sha256 is not None:
        return _given_digest(sha256)
    if file is not None:
        return _digest(file, _read(file))
    own = folder / TOKEN_FILE
    if (token := _read(own)) is None:
        _make(own, random)
        token = _read(own)
    return _digest(own, token)


def _make(path: Path, random: Callable[[int], bytes]) -> None:
    try:
        with suppress(FileExistsError):  # another server was faster
            create_file_atomically(path, base64.urlsafe_b64encode(random(TOKEN_BYTES)) + b"\n", 0o600)
    except OSError as error:
        raise TokenRefused(f"{path} cannot be written: {error.strerror}") from error


def _given_digest(text: str) -> bytes:
    try:
        digest = bytes.fromhex(text) if len(text) == DIGEST_CHARACTERS else b""
    except ValueError:
        digest = b""
    if len(digest) * 2 != DIGEST_CHARACTERS:
        raise TokenRefused(f"expected a SHA-256 of {DIGEST_CHARACTERS} hexadecimal digits")
    return digest


def _read(path: Path) -> bytes | None:
    try:
        return read_regular_file(path, MOST_BYTES, private=True)
    except UnreadableFileError as error:
        raise TokenRefused(f"{path} cannot be used as a token: {error}") from error


def _digest(path: Path, content: bytes | None) -> bytes:
    if content is None:
        raise TokenRefused(f"{path} does not exist")
    words = content.split()
    if len(words) != 1 or not words[0].isascii():
        raise TokenRefused(f"expected one word of ASCII characters in {path}")
    return hashlib.sha256(words[0]).digest()
