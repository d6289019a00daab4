"""Lets other tasks run during long work on input from outside.

One event loop serves every conversation and every request. A loop over input whose awaits may never block spends a
budget; when it is used up, the loop yields.
"""

from __future__ import annotations

import anyio.lowlevel

from app_server.core.bounds import PIECE_BYTES, PIECE_STEPS


class YieldBudget:
    """Counts the bytes and steps since the last yield. It does not use time, so it behaves the same everywhere."""

    __slots__ = ("_bytes", "_steps")

    def __init__(self) -> None:
        self._bytes = self._steps = 0

    async def spend(self, size: int, steps: int = 1) -> None:
        """Call it after each piece of work."""
        self._bytes += size
        self._steps += steps
        if self._bytes >= PIECE_BYTES or self._steps >= PIECE_STEPS:
            self._bytes = self._steps = 0
            await anyio.lowlevel.checkpoint()
