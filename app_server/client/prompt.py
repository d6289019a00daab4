"""What a user says, as the protocol has it: text, images by path or as bytes, and the protocol's own parts."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Sequence
from typing import TypeAlias

from protocol.v2.input import ImageUserInput, LocalImageUserInput, TextUserInput, UserInput

Prompt: TypeAlias = str | UserInput | Sequence[str | UserInput]
"""A text, a part, or a sequence of both: `["What is this?", image("shot.png")]`."""

KINDS = {
    "image/png": re.compile(rb"\x89PNG\r\n\x1a\n"),
    "image/jpeg": re.compile(rb"\xff\xd8\xff"),
    "image/gif": re.compile(rb"GIF8[79]a"),
    "image/webp": re.compile(rb"RIFF....WEBP", re.DOTALL),
}
"""How the bytes of each kind begin."""


def image(source: str | os.PathLike[str] | bytes) -> UserInput:
    """A picture: its path, on the machine of the server, or its bytes (PNG, JPEG, GIF, WebP). Raises ValueError."""
    if isinstance(source, bytes):
        mime = next((mime for mime, beginning in KINDS.items() if beginning.match(source)), None)
        if mime is None:
            raise ValueError("expected the bytes of a PNG, JPEG, GIF or WebP image")
        return ImageUserInput(url=f"data:{mime};base64,{base64.b64encode(source).decode('ascii')}")
    return LocalImageUserInput(path=os.path.abspath(source))


def parts_of(prompt: Prompt) -> tuple[UserInput, ...]:
    parts = prompt if isinstance(prompt, Sequence) and not isinstance(prompt, str) else (prompt,)
    return tuple(TextUserInput(text=part) if isinstance(part, str) else part for part in parts)
