"""What the kernel says of processes: which there are, and what they hold. On Linux."""

import os
import time
from collections.abc import Iterable
from pathlib import Path

GRACE = 30.0
"""Seconds that what was killed, and helpers of low priority, may take to be gone on a loaded machine."""


def memory(pid: int) -> int:
    """Bytes of a process in memory."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def command_of(pid: int) -> str:
    """The command line of a process, cut; `gone` where it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:120]
    except OSError:
        return "gone"


def children(pid: int) -> set[int]:
    """The children of all threads of a process, dead ones that nobody waited for included; none where it has ended."""
    found: set[int] = set()
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found |= set(map(int, path.read_text().split()))
        except OSError:  # that thread has ended
            continue
    return found


def descendants(pid: int) -> set[int]:
    """The children of a process, and theirs."""
    found: set[int] = set()
    todo = [pid]
    while todo:
        more = children(todo.pop())
        todo += more
        found |= more
    return found


def marked(mark: str) -> set[int]:
    """Processes that have the mark in their environment or run below a folder of that name, whosever they are."""
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
        except OSError:  # it has ended, or is not ours to look at
            continue
    return found


def runs(pid: int) -> bool:
    """Whether it is there and has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


def alive(pids: Iterable[int]) -> list[int]:
    """Those that still run, after time to be gone."""
    end = time.monotonic() + GRACE
    while True:
        left = [pid for pid in pids if runs(pid)]
        if not left or time.monotonic() > end:
            return left
        time.sleep(0.02)
