"""Lines on the wire: splitting bytes into them, without I/O, and the interface of a transport, which `stdio`,
`memory` and `websocket` implement.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from msgspec import Struct

DEFAULT_LINE_LIMIT = 64 * 1024 * 1024
"""Maximum size of one message, in bytes. Real clients send images inline; 64 MiB is what the protocol documentation
promises.
"""


class Oversized(Struct, frozen=True):
    """A line that was dropped because it exceeded the limit, or was long while too many other long ones were being
    sent.
    """

    size: int
    """Size of the line without its line end, in bytes."""
    crowded: bool = False
    """Whether the line was within the limit, and may be sent again."""


class LineDecoder:
    """Splits a stream of bytes at newlines."""

    def __init__(self, limit: int = DEFAULT_LINE_LIMIT) -> None:
        self._limit = limit
        self._held = bytearray()
        """The start of a line. One growing buffer, because a list of one-byte chunks would take forty times as much."""
        self._size = 0
        self._crowded = False

    @property
    def held(self) -> int:
        """Number of bytes of an incomplete line."""
        return len(self._held)

    def feed(self, data: bytes) -> list[bytes | Oversized]:
        """Return the lines completed by `data`, without line ends, in order."""
        if b"\n" not in data:
            self._hold(data)
            return []
        *lines, tail = data.split(b"\n")
        out: list[bytes | Oversized] = []
        if self._size:
            self._hold(lines.pop(0))
            out.append(self._take())
        out.extend(line if len(line) <= self._limit else Oversized(len(line)) for line in lines)
        if tail:
            self._hold(tail)
        return out

    def drop(self) -> None:
        """Drop the incomplete line, because there is no room for it."""
        self._crowded = True
        self._held.clear()

    def close(self) -> bytes:
        """Return the incomplete last line at the end of the stream."""
        rest = self._take()
        return rest if isinstance(rest, bytes) else b""

    @property
    def _is_kept(self) -> bool:
        return not self._crowded and self._size <= self._limit

    def _hold(self, data: bytes) -> None:
        self._size += len(data)
        if self._is_kept:
            self._held += data
        else:
            self._held.clear()

    def _take(self) -> bytes | Oversized:
        size, held = self._size, self._held
        line = bytes(held) if self._is_kept else Oversized(size, crowded=size <= self._limit)
        self._size, self._held, self._crowded = 0, bytearray(), False
        return line


class TransportClosed(Exception):
    """The other side no longer reads what is written."""


class Transport(Protocol):
    def lines(self) -> AsyncIterator[list[bytes | Oversized]]:
        """Batches of whole lines as they arrive; ends when the other side closes its end."""
        ...

    async def write(self, data: bytes) -> None:
        """Write all of `data` (whole lines, ends included). Raises TransportClosed."""
        ...
