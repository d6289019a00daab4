"""What the processes of a command use, from /proc. Where a system has none, nothing is known."""

from __future__ import annotations

import os

from app_server.core.launcher import descendants
from protocol.records import dataclass


@dataclass(frozen=True, slots=True)
class ProcessUsage:
    pid: int
    """The command's own process."""
    cpu_seconds: float
    """Of all its processes, and of those that they waited for."""
    rss_kb: int
    age_seconds: float
    """Since the command's own process began."""


@dataclass(frozen=True, slots=True)
class CommandRoot:
    """Where the processes of a command begin."""

    pid: int
    is_supervisor: bool
    """Of a process that is none of the command's own, but has all of them below it."""


@dataclass(frozen=True, slots=True)
class _Process:
    cpu_seconds: float
    rss_kb: int
    begin_seconds: float
    """Since the system started."""


def usage_of(root: CommandRoot, table: dict[int, int]) -> ProcessUsage | None:
    """`table`: the parent of every process, as `descendants.listed` has it. Blocks."""
    below = descendants.below(root.pid, table)
    found = {
        pid: each for pid in (below if root.is_supervisor else [root.pid, *below]) if (each := _read(pid))
    }
    # A supervisor's first child is the command; later ones are orphans of it.
    own = (
        min(
            (pid for pid in found if table.get(pid) == root.pid or pid == root.pid),
            key=lambda pid: found[pid].begin_seconds,
            default=None,
        )
        if root.is_supervisor
        else root.pid
    )
    uptime = _uptime()
    if own not in found or own is None or uptime is None:
        return None
    return ProcessUsage(
        own,
        sum(each.cpu_seconds for each in found.values()),
        sum(each.rss_kb for each in found.values()),
        max(uptime - found[own].begin_seconds, 0.0),
    )


def _read(pid: int) -> _Process | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        tick = os.sysconf("SC_CLK_TCK")
        return _Process(
            cpu_seconds=sum(int(each) for each in fields[11:15]) / tick,
            rss_kb=int(fields[21]) * os.sysconf("SC_PAGE_SIZE") // 1024,
            begin_seconds=int(fields[19]) / tick,
        )
    except (OSError, ValueError, IndexError):
        return None


def _uptime() -> float | None:
    try:
        with open("/proc/uptime", "rb") as file:
            return float(file.read().split()[0])
    except (OSError, ValueError, IndexError):
        return None
