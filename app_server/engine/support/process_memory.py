"""The memory of the process: denies other processes access to it, and returns what is unused to the system, if the C
library is glibc.

By default glibc keeps much of the memory that one large output of a command took: it raises its limit for blocks that
get a mapping of their own, and keeps everything below the topmost used block of the heap.
"""

from __future__ import annotations

import _ctypes  # cheaper than `ctypes`, which makes all its types first
import functools
import sys

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
        _call("prctl", PR_SET_DUMPABLE, 0, 0, 0, 0)


def return_large_blocks() -> None:
    """Return each large block to the system at the moment when it is freed, from now on."""
    if _has("mallopt"):
        _call("mallopt", M_MMAP_THRESHOLD, LARGE_BLOCK)


def return_free_memory() -> None:
    """Return the free memory of the heap to the system now. Takes about a millisecond."""
    if _has("malloc_trim"):
        _call("malloc_trim", 0)


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


def _has(name: str) -> bool:
    """Return whether the C library has a function that only glibc has."""
    try:
        return sys.platform == "linux" and _address(name) != 0
    except OSError:
        return False


def _call(name: str, *arguments: int) -> None:
    """Call a function of the C library. Raises OSError if it has none of that name."""
    _ctypes.call_cdeclfunction(_address(name), arguments)


@functools.cache
def _address(name: str) -> int:
    program = _ctypes.dlopen(None, 0)  # type: ignore[arg-type]  # this process with its libraries
    return _ctypes.dlsym(program, name)
