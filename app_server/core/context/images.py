"""Image files as data URLs, for requests to the model."""

from __future__ import annotations

import base64
from pathlib import Path

from app_server.beneath import RefusedName, TooLarge, read_named

MAX_IMAGE_BYTES = 20 * 1024 * 1024
"""For one image; providers accept no larger ones."""

_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"BM", "image/bmp"),
)


class ImageUnreadable(Exception):
    """The file is not a valid image for the model; the text is the reason."""


def image_data_url(path: Path) -> str:
    """Reads a file that the user named. Blocks: call it in a thread. Raises ImageUnreadable or OSError."""
    try:
        data = read_named(path.absolute(), MAX_IMAGE_BYTES)
    except TooLarge:
        raise ImageUnreadable(f"larger than {MAX_IMAGE_BYTES} bytes") from None
    except (IsADirectoryError, RefusedName):
        raise ImageUnreadable("not a file") from None
    return data_url(data)


def data_url(data: bytes) -> str:
    """Raises ImageUnreadable for an unknown format."""
    mime = _mime(data)
    if mime is None:
        raise ImageUnreadable("not a PNG, JPEG, GIF, BMP or WebP image")
    return f"data:{mime};base64,{base64.b64encode(data).decode('ascii')}"


def _mime(data: bytes) -> str | None:
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((mime for magic, mime in _MAGIC if data.startswith(magic)), None)
