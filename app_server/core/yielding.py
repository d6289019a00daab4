"""Work on bytes from outside gives way to other tasks.

One event loop serves every conversation and every request of the client. A loop over bytes that somebody else chose,
whose awaits may all find something ready, spends a budget; when it is used up, the others run.
"""

from __future__ import annotations

import anyio.lowlevel

from app_server.core.bounds import PIECE_BYTES, PIECE_STEPS


class YieldBudget:
    """Counts what was done since other tasks last ran: bytes and steps, not time, so it is the same everywhere."""

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
