"""Returns memory that is no longer needed to the system. Does nothing where the C library is not glibc.

By default glibc keeps much of what one large output of a command took: it raises its limit for blocks that get a
mapping of their own, and keeps everything below the topmost block of the heap that is still in use.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable

M_MMAP_THRESHOLD = -3
LARGE_BLOCK = 320 * 1024
"""Bytes from which on a block gets a mapping of its own: more than one read of a pipe, which would take longer then."""


def return_large_blocks() -> None:
    """From now on, return each large block at the moment when it is freed."""
    mallopt = _function("mallopt")
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, LARGE_BLOCK)


def return_free_memory() -> None:
    """Return what is free in the heap now. Takes about a millisecond."""
    trim = _function("malloc_trim")
    if trim is not None:
        trim(0)


@functools.cache
def _function(name: str) -> Callable[..., int] | None:
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None
