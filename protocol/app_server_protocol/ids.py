"""Plain texts that identify things: ids, paths in the form of clients, and the origin of a conversation.

Fast to import: it does without pydantic, so that a list needs no models. The caller provides the bits of an id (clock,
random).
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, NewType

from app_server_protocol import base

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema

ConversationId = NewType("ConversationId", str)

_UUID = re.compile(r"[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}", re.IGNORECASE)


def new_conversation_id(clock_ms: int, random: bytes) -> ConversationId:
    """Return a UUIDv7: 48 bits of milliseconds, so that ids sort by creation, then at least 10 random bytes."""
    if len(random) < 10:
        raise ValueError("a conversation id needs 10 random bytes")
    bits = bytearray((clock_ms % (1 << 48)).to_bytes(6, "big") + random[:10])
    bits[6] = (bits[6] & 0x0F) | 0x70
    bits[8] = (bits[8] & 0x3F) | 0x80
    return ConversationId(hyphenated(bits.hex()))


def hyphenated(digits: str) -> str:
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def parse_conversation_id(text: str) -> ConversationId | None:
    """Return the id in its usual spelling; None if `text` is not a UUID."""
    if not _UUID.fullmatch(text):
        return None
    return ConversationId(hyphenated(text.replace("-", "").lower()))


def is_unicode(text: str) -> bool:
    """Return whether UTF-8 can encode the text, because it has no lone surrogate."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def sound_path(text: str) -> str:
    """Return `text` if it can be the path of a file. Raises ValueError."""
    if "\0" in text:
        raise ValueError("a path must not contain a NUL character")
    if not is_unicode(text):
        raise ValueError("a path must be valid Unicode text")
    return text


def absolute_path(text: str) -> str:
    """Return `text` if it can be the path of a file in any working directory of the server. Raises ValueError."""
    if not text.startswith("/"):
        raise ValueError("AbsolutePathBuf deserialized without a base path: expected an absolute path")
    return sound_path(text)


class Checked:
    """Stand-in for pydantic's `AfterValidator(check)`, which only models need, and which looks at the signature."""

    def __init__(self, check: Callable[[str], str]) -> None:
        self._check = check

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return base.checked_text(self._check, source, handler)


PathText = Annotated[str, Checked(sound_path)]
AbsolutePath = Annotated[str, Checked(absolute_path)]
"""An absolute path that a client sends."""


class SessionOrigin(StrEnum):
    """Kind of client that began a conversation."""

    CLI = "cli"
    VSCODE = "vscode"
    EXEC = "exec"
    MCP = "mcp"
    UNKNOWN = "unknown"

    @classmethod
    def _missing_(cls, value: object) -> SessionOrigin | None:
        # A source from a later version must not make a stored conversation unreadable.
        return cls.UNKNOWN if isinstance(value, str) else None
