"""Runs blocking work in a worker thread, also at a moment when the system gives no more threads.

`anyio.to_thread` raises a bare RuntimeError then, which nobody expects: it would end whatever task group it passes.
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
"""How the interpreter words it; there is no class of its own for it."""


async def run_in_thread(
    work: Callable[[*Arguments], T], *arguments: *Arguments, abandon_on_cancel: bool = False
) -> T:
    """`work(*arguments)`, which must not take part in the event loop. Without a thread, short work is done in the loop.

    `abandon_on_cancel` marks work that may hang, which a cancelled caller leaves to itself: that cannot be done in the
    loop. It raises OSError (EAGAIN) then, as starting a process would.
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
