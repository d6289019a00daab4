"""What a server left behind: processes, tasks, threads. Looked up before and after; anything new is a leak."""

import asyncio
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import anyio

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
        frozenset(children()),
    )


def children() -> set[int]:
    """Children of this process, dead ones that nobody waited for included."""
    found: set[int] = set()
    for path in Path("/proc/self/task").glob("*/children"):
        try:
            found |= {int(pid) for pid in path.read_text().split()}
        except OSError:  # that thread has ended
            continue
    return found


def marked(mark: str) -> set[int]:
    """Processes that have the mark in their environment or run below a folder of that name, whosever they are."""
    found = set()
    for path in Path("/proc").glob("[0-9]*"):
        if int(path.name) == os.getpid():
            continue
        try:
            if mark.encode() in (path / "environ").read_bytes() or mark in os.readlink(path / "cwd"):
                found.add(int(path.name))
        except OSError:  # it has ended, or is not ours to look at
            continue
    return found


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
    processes = (children() - before.children) | marked(mark)
    return {
        "tasks": [task.get_name() for task in tasks],
        "threads": [thread.name for thread in threads if not thread.name.startswith(POOLED)],
        "processes": [f"{pid} {_command(pid)}" for pid in processes],
    }


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:80]
    except OSError:
        return "gone"
