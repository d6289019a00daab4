"""Decompresses the bodies of responses in pieces of bounded size. Pure.

Requests send `accept-encoding: identity`, but some servers compress nevertheless: gzip and deflate are decoded. Bodies
that expand too much are rejected: deflate can expand one byte to a thousand.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from app_server.engine.support.worker_threads import PIECE_BYTES

INPUT_BYTES = 4 * 1024
"""Number of compressed bytes that are passed to zlib at once. zlib copies its unused input with each piece of
output.
"""

UNQUESTIONED_BYTES = 16 * 1024 * 1024
"""Size of the output below which its ratio to the input is not checked, in bytes: short repetitive streams compress
very well.
"""

MAX_RATIO = 100
"""Maximum average expansion of one compressed byte, above `UNQUESTIONED_BYTES`. Event streams of real answers reach 10
to 30; traps have several hundred, up to deflate's limit of 1032.
"""

_GZIP_WINDOW = 16 + zlib.MAX_WBITS
_GZIP = frozenset({"gzip", "x-gzip"})
_DEFLATE = "deflate"
_NOT_DECODED = frozenset({"br", "zstd", "compress", "x-compress", "dcb", "dcz"})
"""Encodings that are not decoded here. Any other name is a mistake without effect: some servers write `utf-8` or
`none`.
"""


class UnsupportedEncoding(Exception):
    """The body has an encoding that no request asked for and that is not decoded here."""


class ExpandsTooMuch(Exception):
    """The body expands so much that it is a trap or an accident."""


class ContentDecoder:
    """Decodes a body by its `content-encoding` header: one encoding at most. Raises UnsupportedEncoding."""

    def __init__(self, content_encoding: str) -> None:
        words = [word.strip() for word in content_encoding.lower().split(",")]
        names = [word for word in words if word not in ("", "identity")]
        if len(names) > 1 or not _NOT_DECODED.isdisjoint(names):
            raise UnsupportedEncoding(", ".join(names)[:80])
        self._gzip = not _GZIP.isdisjoint(names)
        self._deflate = _DEFLATE in names
        self._inflater = zlib.decompressobj(_GZIP_WINDOW) if self._gzip else None
        self._head = b""
        """First bytes of a deflate body, until it is known which of its two forms it has."""
        self._taken = self._given = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the decoded bytes, in pieces of at most PIECE_BYTES. An empty piece means that work was done without
        output. Raises zlib.error and ExpandsTooMuch.
        """
        if not self._gzip and not self._deflate:
            for start in range(0, len(data), PIECE_BYTES):
                yield data[start : start + PIECE_BYTES]
            return
        for start in range(0, len(data), INPUT_BYTES):
            yield from self._inflate(data[start : start + INPUT_BYTES])

    def close(self) -> None:
        """End the body. Raises zlib.error if it is incomplete."""
        if self._head or (self._inflater is not None and self._taken and not self._inflater.eof):
            raise zlib.error("the compressed data is cut off")

    def _inflate(self, data: bytes) -> Iterator[bytes]:
        self._taken += len(data)
        if self._inflater is None:
            self._head += data
            if len(self._head) < 2:
                return
            data, self._head = self._head, b""
            self._inflater = zlib.decompressobj(_deflate_window(data))
        while data:
            if self._inflater.eof:
                data = self._next_member(data)
                if not data:
                    return
            piece = self._inflater.decompress(data, PIECE_BYTES)
            data = self._inflater.unconsumed_tail or self._inflater.unused_data
            yield self._counted(piece)
            while len(piece) == PIECE_BYTES and not data and not self._inflater.eof:
                # All input has arrived, and a part of the output is still pending.
                piece = self._inflater.decompress(b"", PIECE_BYTES)
                yield self._counted(piece)

    def _next_member(self, data: bytes) -> bytes:
        """Begin the next stream: a gzip body may consist of several, padded with zeros. Raises zlib.error for
        deflate.
        """
        if not self._gzip:
            raise zlib.error("bytes follow the end of the compressed data")
        data = data.lstrip(b"\0")
        if data:
            self._inflater = zlib.decompressobj(_GZIP_WINDOW)
        return data

    def _counted(self, piece: bytes) -> bytes:
        self._given += len(piece)
        if self._given > UNQUESTIONED_BYTES and self._given > MAX_RATIO * self._taken:
            raise ExpandsTooMuch
        return piece


def _deflate_window(head: bytes) -> int:
    """Return zlib's window argument for a deflate body. HTTP requires the zlib format with its header, which some
    servers omit.
    """
    method, window, checked = head[0] & 0x0F, head[0] >> 4, int.from_bytes(head[:2], "big") % 31
    framed = method == zlib.DEFLATED and window <= 7 and checked == 0
    return zlib.MAX_WBITS if framed else -zlib.MAX_WBITS
