"""Facts of the kernel about a process and its descendants: memory, time, descriptors, threads.

They are available only on Linux (`/proc`). Elsewhere they are NAN, and tables leave such figures out.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
MIB = 1 << 20
NAN = math.nan


@dataclass(frozen=True, slots=True)
class Footprint:
    """Resources of a process at one moment."""

    rss: float
    """Memory of the process itself, in MiB."""
    tree: float
    """Memory of the process and its descendants, in MiB. Shared memory is counted once."""
    descriptors: int
    threads: int
    processes: int


def cpu_seconds(pid: int) -> float:
    """Return the processor time of the process and of its ended descendants, in seconds."""
    try:
        fields = _stat(pid)
    except OSError:
        return NAN
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def own_cpu_seconds(pid: int) -> float:
    """Return the processor time of the process alone, in seconds."""
    try:
        fields = _stat(pid)
    except OSError:
        return NAN
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def tree_cpu_seconds(pid: int) -> float:
    """Return the processor time of the process and all descendants, in seconds. An ended process counts once it was
    waited for.
    """
    return sum(cpu_seconds(each) for each in (pid, *descendants(pid)))


def rss(pid: int) -> float:
    return _status(pid).get("VmRSS", NAN)


def most_rss(pid: int) -> float:
    """Return the peak memory of the process in MiB; 0 if it has ended."""
    return _status(pid).get("VmHWM", 0.0)


def footprint(pid: int) -> Footprint:
    below = descendants(pid)
    try:
        descriptors = len(os.listdir(PROC / str(pid) / "fd"))
        threads = len(os.listdir(PROC / str(pid) / "task"))
    except OSError:
        descriptors = threads = 0
    tree = sum(_proportional(each) for each in (pid, *below))
    return Footprint(rss(pid), tree, descriptors, threads, 1 + len(below))


def descendants(pid: int) -> list[int]:
    parents: dict[int, int] = {}
    for entry in PROC.glob("[0-9]*"):
        try:
            parents[int(entry.name)] = int(_stat(int(entry.name))[1])
        except OSError:
            continue  # the process has ended meanwhile
    found = [pid]
    for each in found:  # the list grows during the loop
        found.extend(child for child, parent in parents.items() if parent == each)
    return found[1:]


def _stat(pid: int) -> list[str]:
    """Return the fields of `stat` from the third on. The second may contain any characters."""
    return (PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()


def _status(pid: int) -> dict[str, float]:
    """Return the sizes in `status`, in MiB."""
    try:
        lines = (PROC / str(pid) / "status").read_text(errors="replace").splitlines()
    except OSError:
        return {}
    pairs = (line.split() for line in lines if line.endswith(" kB"))
    return {name.rstrip(":"): int(size) * 1024 / MIB for name, size, _ in pairs}


def _proportional(pid: int) -> float:
    try:
        lines = (PROC / str(pid) / "smaps_rollup").read_text().splitlines()
    except OSError:
        return NAN
    return next((int(line.split()[1]) * 1024 / MIB for line in lines if line.startswith("Pss:")), NAN)
