"""Messages and bytes over time, in a bounded number of equal parts: joined in pairs as time goes on. Pure."""

from __future__ import annotations

from protocol.structs import Json

PARTS = 120
FIRST_WIDTH = 10.0
"""Milliseconds."""


class Histogram:
    def __init__(self) -> None:
        self._width = FIRST_WIDTH
        self._counts = {source: [0] * PARTS for source in ("client", "server")}
        self._sizes = {source: [0] * PARTS for source in ("client", "server")}
        self._last = 0

    def add(self, source: str, at: float, size: int) -> None:
        while at >= self._width * PARTS:
            self._width *= 2
            self._last //= 2
            for parts in (*self._counts.values(), *self._sizes.values()):
                joined = [parts[n] + parts[n + 1] for n in range(0, PARTS, 2)]
                parts[:] = joined + [0] * (PARTS - len(joined))
        part = max(0, int(at / self._width))
        self._last = max(self._last, part)
        self._counts[source][part] += 1
        self._sizes[source][part] += size

    def shown(self) -> Json:
        """Return the parts until the last one with a message."""
        end = self._last + 1
        return {
            "width": self._width,
            "counts": {source: parts[:end] for source, parts in self._counts.items()},
            "sizes": {source: parts[:end] for source, parts in self._sizes.items()},
        }
