"""What a user says, as the protocol has it: text, images by path or as bytes, and the protocol's own parts."""

from __future__ import annotations

import base64
import os
import re
import stat
from collections.abc import Sequence
from typing import TypeAlias

from app_server.client.failures import InvalidArgument
from protocol.v2.item_parts import ImageUserInput, LocalImageUserInput, TextUserInput, UserInput

Prompt: TypeAlias = str | UserInput | Sequence[str | UserInput]
"""A text, a part, or a sequence of both: `["What is this?", image("shot.png")]`."""

KINDS = {
    "image/png": re.compile(rb"\x89PNG\r\n\x1a\n"),
    "image/jpeg": re.compile(rb"\xff\xd8\xff"),
    "image/gif": re.compile(rb"GIF8[79]a"),
    "image/bmp": re.compile(rb"BM"),
    "image/webp": re.compile(rb"RIFF....WEBP", re.DOTALL),
}
"""How the bytes of each kind begin."""

LONGEST_BEGINNING = 12


def image(source: str | os.PathLike[str] | bytes) -> UserInput:
    """A picture: its path, or its bytes (PNG, JPEG, GIF, BMP, WebP). Raises InvalidArgument where there is none."""
    if isinstance(source, bytes):
        mime = next((mime for mime, beginning in KINDS.items() if beginning.match(source)), None)
        if mime is None:
            raise InvalidArgument("expected the bytes of a PNG, JPEG, GIF, BMP or WebP image")
        return ImageUserInput(url=f"data:{mime};base64,{base64.b64encode(source).decode('ascii')}")
    try:
        path = os.path.abspath(source)
        regular = stat.S_ISREG(os.stat(path).st_mode)  # a pipe would be waited for
        with open(path if regular else os.devnull, "rb") as file:
            beginning = file.read(LONGEST_BEGINNING)
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"{os.fspath(source)}: {getattr(error, 'strerror', error)}") from error
    if not any(kind.match(beginning) for kind in KINDS.values()):
        raise InvalidArgument(f"{os.fspath(source)} is not a PNG, JPEG, GIF, BMP or WebP image")
    return LocalImageUserInput(path=path)


def parts_of(prompt: Prompt) -> tuple[UserInput, ...]:
    parts = prompt if isinstance(prompt, Sequence) and not isinstance(prompt, str) else (prompt,)
    return tuple(TextUserInput(text=part) if isinstance(part, str) else part for part in parts)
