"""Image files as data URLs, for requests to the model."""

from __future__ import annotations

from pathlib import Path

from app_server.beneath import RefusedName, TooLarge, read_named
from app_server.core.pictures import ImageUnreadable, data_url

MAX_IMAGE_BYTES = 20 * 1024 * 1024
"""For one image; providers accept no larger ones."""


def image_data_url(path: Path, *, checksums: bool = True) -> str:
    """Read a file that the user named. `checksums` False: those of a PNG may be wrong. Blocks: call it in a thread.
    Raises ImageUnreadable or OSError."""
    try:
        data = read_named(path.absolute(), MAX_IMAGE_BYTES)
    except TooLarge:
        raise ImageUnreadable(f"larger than {MAX_IMAGE_BYTES} bytes") from None
    except (IsADirectoryError, RefusedName):
        raise ImageUnreadable("not a file") from None
    return data_url(data, checksums=checksums)
