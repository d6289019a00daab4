"""Facts about processes as the Linux kernel reports them: which processes exist and what they use."""

import os
import time
from collections.abc import Iterable
from pathlib import Path

GRACE = 30.0
"""Time in which a killed process or a helper of low priority has to be gone on a loaded machine, in seconds."""


def memory(pid: int) -> int:
    """Return the resident memory of a process, in bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def command_of(pid: int) -> str:
    """Return the shortened command line of a process; `gone` if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:120]
    except OSError:
        return "gone"


def children(pid: int) -> set[int]:
    """Return the children of all threads of a process, zombies included; none if the process has ended."""
    found: set[int] = set()
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found |= set(map(int, path.read_text().split()))
        except OSError:  # the thread has ended
            continue
    return found


def descendants(pid: int) -> set[int]:
    """Return all descendants of a process."""
    found: set[int] = set()
    todo = [pid]
    while todo:
        more = children(todo.pop())
        todo += more
        found |= more
    return found


def marked(mark: str) -> set[int]:
    """Return the processes of any user that have the mark in their environment or run below a folder of that name."""
    found = set()
    sought = mark.encode()
    for name in os.listdir("/proc"):  # each world looks: plain calls, which take half the time of paths
        if not name.isdecimal() or int(name) == os.getpid():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb", buffering=0) as environ:
                variables = environ.read()
            if sought in variables or mark in os.readlink(f"/proc/{name}/cwd"):
                found.add(int(name))
        except OSError:  # the process has ended, or belongs to another user
            continue
    return found


def runs(pid: int) -> bool:
    """Return whether the process exists and has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


def alive(pids: Iterable[int]) -> list[int]:
    """Return the processes that still run after the grace period."""
    end = time.monotonic() + GRACE
    while True:
        left = [pid for pid in pids if runs(pid)]
        if not left or time.monotonic() > end:
            return left
        time.sleep(0.02)
