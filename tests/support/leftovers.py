"""Leak check: processes, tasks and threads that a server left behind. They are listed before and after; anything new is
a leak.
"""

import asyncio
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass

import anyio

from tests.support.processes import children, command_of, marked

GRACE = 3.0
"""Time for which a killed process may still be visible, in seconds."""

POOLED = ("AnyIO worker thread", "asyncio_")
"""Names of threads in the event loop's pools, which wait for more work and end with the loop."""


@dataclass(frozen=True, slots=True)
class Before:
    """Processes, tasks and threads that existed before the server."""

    tasks: frozenset[int]
    threads: frozenset[int]
    children: frozenset[int]


def look() -> Before:
    return Before(
        frozenset(id(task) for task in asyncio.all_tasks()),
        frozenset(id(thread) for thread in threading.enumerate()),
        frozenset(children(os.getpid())),
    )


async def leaks(before: Before, mark: str) -> list[str]:
    """Return everything new that still exists, after waiting for what is about to end."""
    found: Mapping[str, list[str]] = {}
    with anyio.move_on_after(GRACE):
        while any((found := _leaks(before, mark)).values()):  # noqa: ASYNC110 - the kernel tells nobody
            await anyio.sleep(0.01)
    return [f"{kind} left: {', '.join(each)}" for kind, each in found.items() if each]


def _leaks(before: Before, mark: str) -> Mapping[str, list[str]]:
    tasks = [task for task in asyncio.all_tasks() if id(task) not in before.tasks]
    threads = [thread for thread in threading.enumerate() if id(thread) not in before.threads]
    processes = (children(os.getpid()) - before.children) | marked(mark)
    return {
        "tasks": [task.get_name() for task in tasks],
        "threads": [thread.name for thread in threads if not thread.name.startswith(POOLED)],
        "processes": [f"{pid} {command_of(pid)}" for pid in processes],
    }
