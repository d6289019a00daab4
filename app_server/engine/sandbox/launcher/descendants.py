"""Finds and kills the descendants of a process, for systems and policies without a pid namespace.

The module runs in the launcher, and in the server after a supervisor has died. Every orphan in the tree of a child
subreaper becomes the reaper's child. So killing and reaping children until there are none ends the tree, whatever
sessions and groups its members moved to. Without /proc, a process finds its children by calling waitid(2) for every
pid.
"""

from __future__ import annotations

import os
import sys

from app_server.engine.sandbox.launcher.stdlib_min import Iterable, signal, suppress

MAX_PID = 1 << 22
"""The largest pid on Linux."""


def kill_below(root: int, leader: int) -> None:
    """Send SIGKILL to every descendant of `root`, and to the process group of `leader`."""
    kill_group(leader)
    for pid in below(root, parents()):
        kill(pid)


def end_tree_of(leader: int) -> None:
    """Kill a session leader whose supervisor has died, and all its descendants. They are stopped first, because the
    children of a killed process get another parent and could not be found any more.
    """
    with suppress(ProcessLookupError, PermissionError):
        if os.getsid(leader) != leader:
            return  # the pid has been reused
    stopped: list[int] = []
    kill_group(leader, signal.SIGSTOP)
    while more := [pid for pid in below(leader, listed()) if pid not in stopped]:
        for pid in more:
            kill(pid, signal.SIGSTOP)
        stopped += more
    for pid in stopped:
        kill(pid)
    kill_group(leader)


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    """Send a signal to a process, if there is one."""
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def kill_group(leader: int, number: int = signal.SIGKILL) -> None:
    """Send a signal to the process group of `leader`, if there is one."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)


def below(root: int, parent_of: dict[int, int]) -> list[int]:
    """Return all descendants of `root` by a table of parents, nearest first."""
    children: dict[int, list[int]] = {}
    for pid, parent in parent_of.items():
        children.setdefault(parent, []).append(pid)
    found: list[int] = []
    level = [root]
    while level:
        level = [pid for parent in level for pid in children.get(parent, ())]
        found += level
    return found


def parents() -> dict[int, int]:
    """Return the parent of every visible process. If they cannot be listed, return only this process's own children.
    Callers repeat it until no process is left. It may fork, so a process with threads must not call it.
    """
    found = listed()
    if found or sys.platform == "darwin":
        return found
    return dict.fromkeys(own_children(), os.getpid())


def listed() -> dict[int, int]:
    """Return the parent of every visible process. Return nothing if processes cannot be listed: without /proc, or with
    too many open files.
    """
    try:
        return _from_ps() if sys.platform == "darwin" else _from_proc()
    except OSError:
        return {}


def _from_proc() -> dict[int, int]:
    found: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with (
                suppress(OSError, ValueError, IndexError),
                open(f"/proc/{name}/stat", "rb") as file,
            ):
                found[int(name)] = int(file.read().rpartition(b")")[2].split()[1])
    return found


def has_children() -> bool:
    """Return whether this process has a child that it has not reaped. It is fast even if the system has many
    processes.
    """
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def own_children() -> list[int]:
    """Return the live children, found by pid. Nearly always all pids are between this process's and the newest one;
    after a wrap-around both outer ranges have to be checked.
    """
    try:
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return []
    oldest, newest = os.getpid(), _newest()
    likely = range(oldest, newest) if oldest < newest else (*range(oldest, MAX_PID), *range(1, newest))
    found = _children_among(likely)
    if found or ended is not None:  # an ended child counts as a child until it is reaped
        return found
    return _children_among(range(1, MAX_PID))


def _newest() -> int:
    """Return the pid that a process would get if it started now."""
    try:
        pid = os.fork()
    except OSError:
        return MAX_PID
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return pid


def _children_among(numbers: Iterable[int]) -> list[int]:
    found: list[int] = []
    for number in numbers:
        try:
            ended = os.waitid(os.P_PID, number, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except OSError:  # no such process, or not our child
            continue
        if ended is None:
            found.append(number)
    return found


def _from_ps() -> dict[int, int]:
    with os.popen("/bin/ps -axo pid=,ppid=") as listing:
        pairs = [line.split() for line in listing]
    return {int(pair[0]): int(pair[1]) for pair in pairs if len(pair) == 2}
