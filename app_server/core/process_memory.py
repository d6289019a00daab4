"""Returns memory that is no longer needed to the system. Does nothing where the C library is not glibc.

By default glibc keeps much of what one large output of a command took: it raises its limit for blocks that get a
mapping of their own, and keeps everything below the topmost block of the heap that is still in use.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable

import anyio

M_MMAP_THRESHOLD = -3
LARGE_BLOCK = 320 * 1024
"""Bytes from which on a block gets a mapping of its own: more than one read of a pipe, which would take longer then."""

SETTLE_SECONDS = 1.0
"""The result of a command is stored, sent to the model and shown; by then all three have usually ended."""


def return_large_blocks() -> None:
    """Return each large block at the moment when it is freed, from now on."""
    mallopt = _function("mallopt")
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, LARGE_BLOCK)


def return_free_memory() -> None:
    """Return what is free in the heap now. Takes about a millisecond."""
    trim = _function("malloc_trim")
    if trim is not None:
        trim(0)


class FreeMemoryReturn:
    """Returns free memory after a large output: at once, and again when its last owners have let go of it."""

    def __init__(self, settle_seconds: float = SETTLE_SECONDS) -> None:
        self._settle_seconds = settle_seconds
        self._owed = anyio.Event()

    def return_now(self) -> None:
        return_free_memory()
        self._owed.set()

    async def return_again(self) -> None:
        """Runs for as long as the server. However much is written, memory is returned once in this time."""
        while True:
            await self._owed.wait()
            await anyio.sleep(self._settle_seconds)
            self._owed = anyio.Event()
            return_free_memory()


@functools.cache
def _function(name: str) -> Callable[..., int] | None:
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None
