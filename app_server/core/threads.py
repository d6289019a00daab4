"""Runs blocking work in a worker thread, even if the system has no thread left.

`anyio.to_thread` raises a bare RuntimeError in that case, which no caller expects: it would cancel whole task groups.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

import anyio.to_thread

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")

NO_THREAD = "can't start new thread"
"""The interpreter's message; the exception has no class of its own."""


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
