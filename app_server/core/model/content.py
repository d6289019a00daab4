"""Bodies as they were before they were encoded for the way: gzip and deflate. Pure."""

from __future__ import annotations

import zlib
from collections.abc import Callable

_GZIP_WINDOW = 16 + zlib.MAX_WBITS


class _Inflater:
    """One encoding. Raises zlib.error where the bytes are none of it."""

    def __init__(self, window: int) -> None:
        self._window = window
        self._inside = zlib.decompressobj(window)
        self._begun = False

    def feed(self, data: bytes) -> bytes:
        try:
            said = self._inside.decompress(data)
        except zlib.error:
            if self._begun or self._window != zlib.MAX_WBITS:
                raise
            # Some servers send deflate without the frame that HTTP asks for.
            self._inside = zlib.decompressobj(-zlib.MAX_WBITS)
            said = self._inside.decompress(data)
        self._begun = True
        return said


_KINDS: dict[str, Callable[[], _Inflater]] = {
    "gzip": lambda: _Inflater(_GZIP_WINDOW),
    "x-gzip": lambda: _Inflater(_GZIP_WINDOW),
    "deflate": lambda: _Inflater(zlib.MAX_WBITS),
}


class Decoder:
    """Undoes what a `content-encoding` header names. An encoding that is not known is left as it is."""

    def __init__(self, content_encoding: str) -> None:
        names = [name.strip().lower() for name in content_encoding.split(",")]
        self._steps = [_KINDS[name]() for name in reversed(names) if name in _KINDS]

    def feed(self, data: bytes) -> bytes:
        """Raises zlib.error."""
        for step in self._steps:
            data = step.feed(data) if data else b""
        return data
