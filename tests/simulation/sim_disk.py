"""The disk of a simulated world: a real folder in memory whose calls can fail, and whose files have virtual times."""

import errno
import fcntl
import itertools
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest

from app_server.core.rollout.disk import DiskCalls
from tests.simulation.sim_model import SimModel

ERRORS = (errno.ENOSPC, errno.EIO, errno.EROFS, errno.EDQUOT)


class Writers:
    """Which server writes which file: one that writes between two writes of another has not waited for its lock."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self._servers = itertools.count()
        self._writes: dict[int, tuple[int, int]] = {}
        """By the inode: who wrote last, and through which opening."""
        self._openings = itertools.count()
        self.synced: dict[int, int] = {}
        """By the inode: how much of a file a loss of power leaves."""
        self._failing: dict[str, int] = {}
        """By path: how often writing has failed since it worked."""
        self.longest_failure = 0
        """How often writing one file has failed in a row, at most."""

    def new(self) -> "Writer":
        return Writer(self, next(self._servers))

    def note(self, server: int, fd: int, opening: int) -> None:
        inode = os.fstat(fd).st_ino
        last, by = self._writes.get(inode, (server, opening))
        if last != server and opening < by:
            self.problems.append(f"two servers write {os.path.basename(os.readlink(f'/proc/self/fd/{fd}'))}")
        self._writes[inode] = server, max(by, opening)

    def tried(self, path: str, *, worked: bool) -> None:
        self._failing[path] = 0 if worked else self._failing.get(path, 0) + 1
        self.longest_failure = max(self.longest_failure, self._failing[path])

    def opening(self) -> int:
        return next(self._openings)


class Writer:
    """The files that one server has open."""

    def __init__(self, writers: Writers, server: int) -> None:
        self._writers, self._server = writers, server
        self._opened: dict[int, int] = {}

    def opened(self, fd: int) -> None:
        self._opened[fd] = self._writers.opening()

    def tried(self, path: str, *, worked: bool) -> None:
        """Note how an attempt to open or to write a file went."""
        self._writers.tried(path, worked=worked)

    def synced(self, fd: int) -> None:
        status = os.fstat(fd)
        self._writers.synced[status.st_ino] = status.st_size

    def writes(self, fd: int) -> None:
        self._writers.note(self._server, fd, self._opened.get(fd, -1))


class Machinery(Protocol):
    """What a disk knows of its machine."""

    def now(self) -> float:
        """Return the seconds since 1970."""
        ...

    def wait(self, seconds: float) -> None:
        """Let time pass, for everybody."""
        ...

    def written(self) -> None:
        """Take note of a write that has worked."""
        ...


def sim_disk(model: SimModel, machinery: Machinery, writer: Writer) -> DiskCalls:
    """Return calls that fail as often as the habits of the world say, until its faults stop."""
    draws, habits = model.draws, model.habits

    def fail(call: str) -> None:
        if model.faults and model.disk_is_full and call != "ftruncate":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if model.faults and draws.chance(f"fault of {call}", habits.disk_faults):
            model.note(f"{call} failed")
            number = draws.pick("errno", ERRORS)
            raise OSError(number, os.strerror(number))

    def stamp(fd: int) -> None:
        if stat.S_ISREG(os.fstat(fd).st_mode):
            os.utime(fd, (machinery.now(), machinery.now()))

    def open_(path: Path, flags: int, mode: int) -> int:
        try:
            fail("open")
            fd = os.open(path, flags, mode)
        except OSError:
            writer.tried(str(path), worked=False)
            raise
        stamp(fd)
        writer.opened(fd)
        return fd

    def write(fd: int, data: memoryview) -> int:
        path = os.readlink(f"/proc/self/fd/{fd}")
        try:
            fail("write")
        except OSError:
            writer.tried(path, worked=False)
            raise
        writer.tried(path, worked=True)
        machinery.wait(draws.seconds("slow disk", *habits.slow_disk) if model.faults else 0.0)
        part = data
        if model.faults and len(data) > 1 and draws.chance("short write", habits.disk_faults):
            part = data[: 1 + draws.below("written", len(data) - 1)]
            model.note("short write")
        written = os.write(fd, part)
        writer.writes(fd)
        stamp(fd)
        machinery.written()
        return written

    def ftruncate(fd: int, size: int) -> None:
        fail("ftruncate")
        os.ftruncate(fd, size)
        stamp(fd)

    def fsync(fd: int) -> None:
        fail("fsync")
        writer.synced(fd)

    return DiskCalls(open=open_, write=write, ftruncate=ftruncate, fsync=fsync)


def _read_only(fd: int) -> str:
    """Return the path of a descriptor, "" where it may be written."""
    if fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY:
        return ""
    return os.readlink(f"/proc/self/fd/{fd}")


@contextmanager
def reading_fails(model: SimModel, home: Path) -> Iterator[None]:
    """Inside, reading what is stored in the home, and moving it, fails as often as the habits of the world say. What
    writers read of their files is left to the faults of writing.
    """
    draws, often = model.draws, model.habits.read_faults
    if not often:
        yield
        return

    def failing(name: str, place: Callable[..., str], often: float) -> Callable[..., Any]:
        real = getattr(os, name)

        def call(first: Any, *args: Any, **named: Any) -> Any:
            stored = model.faults and place(first).startswith(
                (f"{home}/sessions", f"{home}/archived_sessions")
            )
            if stored and draws.chance(f"fault of {name}", often):
                model.note(f"{name} failed")
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return real(first, *args, **named)

        return call

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "pread", failing("pread", _read_only, often))
        # Few things are moved.
        patch.setattr(os, "rename", failing("rename", str, min(1.0, 10 * often)))
        yield
