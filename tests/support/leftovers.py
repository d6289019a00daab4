"""What a server left behind: processes, tasks, threads. Looked up before and after; anything new is a leak."""

import asyncio
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass

import anyio

from tests.support.processes import children, command_of, marked

GRACE = 3.0
"""Seconds for which something that was killed may still be seen."""

POOLED = ("AnyIO worker thread", "asyncio_")
"""Threads of the event loop's pools, which wait for more work and end with the loop."""


@dataclass(frozen=True, slots=True)
class Before:
    """What was there before the server was."""

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
    """Everything that is there still; what is about to go is waited for."""
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
