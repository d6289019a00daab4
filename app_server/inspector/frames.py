"""What the process that passes bytes sends to the observer: frames of a source, a time and data. No I/O."""

from __future__ import annotations

import struct
from enum import Enum

from msgspec import Struct

_HEAD = struct.Struct("!cQQ")


class Source(Enum):
    """Where data comes from, as a byte of a frame's head."""

    CLIENT = b"c"
    SERVER = b"s"
    STDERR = b"e"
    """Of the server."""
    INSPECTOR = b"i"
    """An event about the connection itself; its data is a JSON object."""


class Frame(Struct, frozen=True):
    source: Source
    at: int
    """Nanoseconds since the inspector started."""
    data: bytes
    """Empty: the source has ended."""


def encode_frame(source: Source, at: int, data: bytes) -> bytes:
    return _HEAD.pack(source.value, at, len(data)) + data


class FrameDecoder:
    """Takes frames out of a stream of bytes."""

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """Return the frames that `data` completes, in order."""
        self._held += data
        frames, at = [], 0
        while len(self._held) - at >= _HEAD.size:
            source, when, size = _HEAD.unpack_from(self._held, at)
            end = at + _HEAD.size + size
            if len(self._held) < end:
                break
            frames.append(Frame(Source(source), when, bytes(self._held[at + _HEAD.size : end])))
            at = end
        del self._held[:at]
        return frames
