"""Finds and kills the processes below one process, for systems and policies without a pid namespace.

Runs in the launcher, and in the server where that is gone. A reaper process sees every orphan of its tree become its
own child, so killing and reaping children until there are none ends the tree, whatever sessions and groups its members
moved to.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys


def kill_below(root: int, leader: int) -> None:
    """Sends SIGKILL to every process below `root`, and to the process group of `leader`."""
    _kill_group(leader, signal.SIGKILL)
    for pid in below(root, parents()):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def end_tree_of(leader: int) -> None:
    """Kills a session leader whose supervisor is gone, and everything below it. All of it is stopped first: what is
    killed hands its children on, and they could not be found any more.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if os.getsid(leader) != leader:
            return  # somebody else has the number by now
    stopped: list[int] = []
    _kill_group(leader, signal.SIGSTOP)
    while more := [pid for pid in below(leader, parents()) if pid not in stopped]:
        for pid in more:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGSTOP)
        stopped += more
    for pid in stopped:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    _kill_group(leader, signal.SIGKILL)


def _kill_group(leader: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)


def below(root: int, parent_of: dict[int, int]) -> list[int]:
    """All descendants of `root` in a table of parents, nearest first."""
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
    """The parent of every process that can be seen; of none where they cannot be listed, as with too many open files.
    Whoever ends a tree asks again until nothing is left.
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
                contextlib.suppress(OSError, ValueError, IndexError),
                open(f"/proc/{name}/stat", "rb") as file,
            ):
                found[int(name)] = int(file.read().rpartition(b")")[2].split()[1])
    return found


def _from_ps() -> dict[int, int]:
    with os.popen("/bin/ps -axo pid=,ppid=") as listing:
        pairs = [line.split() for line in listing]
    return {int(pair[0]): int(pair[1]) for pair in pairs if len(pair) == 2}
