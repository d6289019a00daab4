"""The memory of the process: denies other processes access to it, and returns what is unused to the system, if the C
library is glibc.

By default glibc keeps much of the memory that one large output of a command took: it raises its limit for blocks that
get a mapping of their own, and keeps everything below the topmost used block of the heap.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable

import anyio

PR_SET_DUMPABLE = 4
M_MMAP_THRESHOLD = -3
LARGE_BLOCK = 320 * 1024
"""Size from which on a block gets a mapping of its own, in bytes. It is more than one read of a pipe, which a mapping
would slow down.
"""

SETTLE_SECONDS = 1.0
"""Delay after a large output, in seconds. By then, the result of the command has usually been stored, sent to the model
and shown.
"""


def refuse_inspection() -> None:
    """Deny other processes of the user access to this process's memory, environment and descriptors: they contain
    keys.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


def return_large_blocks() -> None:
    """Return each large block to the system at the moment when it is freed, from now on."""
    mallopt = _function("mallopt")
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, LARGE_BLOCK)


def return_free_memory() -> None:
    """Return the free memory of the heap to the system now. Takes about a millisecond."""
    trim = _function("malloc_trim")
    if trim is not None:
        trim(0)


class FreeMemoryReturn:
    """Returns free memory after a large output: at once, and again when the last users of the output are done."""

    def __init__(self, settle_seconds: float = SETTLE_SECONDS) -> None:
        self._settle_seconds = settle_seconds
        self._owed = anyio.Event()

    def return_now(self) -> None:
        return_free_memory()
        self._owed.set()

    async def return_again(self) -> None:
        """Return memory again after outputs, at most once per delay, for as long as the server runs."""
        while True:
            await self._owed.wait()
            await anyio.sleep(self._settle_seconds)
            self._owed = anyio.Event()
            return_free_memory()


@functools.cache
def _function(name: str) -> Callable[..., int] | None:
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None
