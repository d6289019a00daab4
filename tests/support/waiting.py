"""Polling for events without a notification: files, and processes of others."""

import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import anyio

PATIENCE = 120.0
"""Maximum time of any wait on a loaded machine, in seconds. It passes only if something hangs."""


async def until(true: Callable[[], bool], what: str = "what the test waits for") -> None:
    """Wait until the condition holds. Raises AssertionError."""
    try:
        with anyio.fail_after(PATIENCE):
            while not true():  # noqa: ASYNC110 - nobody could set an event
                await anyio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"never happened: {what}") from None


def wait_until(
    true: Callable[[], bool],
    what: Callable[[], str] = lambda: "never happened: what the test waits for",
    meanwhile: Callable[[], object] = lambda: time.sleep(0.01),
) -> None:
    """Wait until the condition holds, without an event loop. Raises AssertionError with `what`."""
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, what()
        meanwhile()


def executed_lines(work: Callable[[], object]) -> int:
    """Run a function and return the number of executed lines of Python: a measure of work that does not depend on the
    machine.
    """
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count
