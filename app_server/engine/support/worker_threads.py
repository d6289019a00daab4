"""Long work beside other tasks: in a worker thread, even if the system has no thread left, or in pieces.

`anyio.to_thread` raises a bare RuntimeError if there is no thread. No caller expects it: it would cancel whole task
groups. One event loop serves every conversation and every request, so a loop over input whose awaits may never block
spends a budget; when it is used up, the loop yields.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

import anyio.lowlevel
import anyio.to_thread

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")

PIECE_BYTES = 64 * 1024
"""Number of bytes that are handled before other tasks run. Even split into the shortest possible lines, they take some
ten milliseconds, a delay that no client notices. Network reads have the same size.
"""

PIECE_STEPS = 256
"""Number of events, lines or chunks that are handled before other tasks run: parsing and forwarding one takes ten to a
hundred microseconds.
"""

NO_THREAD = "can't start new thread"
"""Message of the interpreter's exception, which has no class of its own."""


async def run_in_thread(
    work: Callable[[*Arguments], T], *arguments: *Arguments, abandon_on_cancel: bool = False
) -> T:
    """Run `work(*arguments)`, which must not use the event loop. Without a thread, short work runs in the event loop.

    `abandon_on_cancel` marks work that may hang; a cancelled caller does not wait for it. Such work cannot run in the
    event loop: without a thread it raises OSError (EAGAIN), as starting a process would.
    """
    began = False

    def begin() -> T:
        nonlocal began
        began = True
        return work(*arguments)

    try:
        return await anyio.to_thread.run_sync(begin, abandon_on_cancel=abandon_on_cancel)
    except RuntimeError as error:
        if began or str(error) != NO_THREAD:
            raise
        if abandon_on_cancel:
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)) from error
    return work(*arguments)


class YieldBudget:
    """Counts the bytes and steps since the last yield. It does not use time, so it behaves the same everywhere."""

    __slots__ = ("_bytes", "_steps")

    def __init__(self) -> None:
        self._bytes = self._steps = 0

    async def spend(self, size: int, steps: int = 1) -> None:
        """Count a piece of work, and yield when the budget is used up. Call it after each piece."""
        self._bytes += size
        self._steps += steps
        if self._bytes >= PIECE_BYTES or self._steps >= PIECE_STEPS:
            self._bytes = self._steps = 0
            await anyio.lowlevel.checkpoint()
