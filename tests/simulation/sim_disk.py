"""The disk of a simulated world: a real folder in memory with calls that can fail, and files with virtual times."""

import errno
import fcntl
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from app_server.engine.checkpoints.restore import FileWriter
from app_server.engine.storage.disk import DiskCalls
from tests.simulation.sim_model import SimModel
from tests.simulation.users_files import contents_of

if TYPE_CHECKING:
    from tests.simulation.sim_world import SimWorld

ERRORS = (errno.ENOSPC, errno.EIO, errno.EROFS, errno.EDQUOT)


@dataclass(slots=True)
class Writers:
    """Record of which server writes which file. A server that writes between two writes of another has not waited for
    its lock.
    """

    problems: list[str] = field(default_factory=list)
    synced: dict[int, int] = field(default_factory=dict)
    """Synced size of each file in bytes, by inode. A loss of power leaves that much."""
    longest_failure: int = 0
    """Longest series of failed writes of one file."""
    _writes: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Last server that wrote the file and the number of its opening, by inode."""
    _opened: dict[tuple[int, int], int] = field(default_factory=dict)
    """Number of the opening among all openings, by server and descriptor."""
    _openings: int = 0
    _failing: dict[str, int] = field(default_factory=dict)
    """Number of failed writes since the last success, by path."""

    def tried(self, path: str, *, worked: bool) -> None:
        """Record whether an attempt to open or to write a file succeeded."""
        self._failing[path] = 0 if worked else self._failing.get(path, 0) + 1
        self.longest_failure = max(self.longest_failure, self._failing[path])

    def opens(self, server: int, fd: int) -> None:
        self._opened[server, fd] = self._openings
        self._openings += 1

    def writes(self, server: int, fd: int) -> None:
        inode, opening = os.fstat(fd).st_ino, self._opened.get((server, fd), -1)
        last, by = self._writes.get(inode, (server, opening))
        if last != server and opening < by:
            self.problems.append(f"two servers write {os.path.basename(os.readlink(f'/proc/self/fd/{fd}'))}")
        self._writes[inode] = server, max(by, opening)

    def syncs(self, fd: int) -> None:
        status = os.fstat(fd)
        self.synced[status.st_ino] = status.st_size


def sim_disk(world: "SimWorld", server: int) -> DiskCalls:
    """Return the disk calls of a server, which fail as often as the habits of the world say until its faults stop."""
    model, draws, habits, writers = world.model, world.draws, world.habits, world.writers

    def fail(call: str) -> None:
        if model.faults and model.disk_is_full and call != "ftruncate":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if model.faults and draws.chance(f"fault of {call}", habits.disk_faults):
            model.note(f"{call} failed")
            number = draws.pick("errno", ERRORS)
            raise OSError(number, os.strerror(number))

    def stamp(fd: int) -> None:
        if stat.S_ISREG(os.fstat(fd).st_mode):
            os.utime(fd, (world.now(), world.now()))

    def open_(path: Path, flags: int, mode: int) -> int:
        try:
            fail("open")
            fd = os.open(path, flags, mode)
        except OSError:
            writers.tried(str(path), worked=False)
            raise
        stamp(fd)
        writers.opens(server, fd)
        return fd

    def write(fd: int, data: memoryview) -> int:
        path = os.readlink(f"/proc/self/fd/{fd}")
        try:
            fail("write")
        except OSError:
            writers.tried(path, worked=False)
            raise
        writers.tried(path, worked=True)
        world.loop.jump(draws.seconds("slow disk", *habits.slow_disk) if model.faults else 0.0)
        part = data
        if model.faults and len(data) > 1 and draws.chance("short write", habits.disk_faults):
            part = data[: 1 + draws.below("written", len(data) - 1)]
            model.note("short write")
        written = os.write(fd, part)
        writers.writes(server, fd)
        stamp(fd)
        world.written()
        return written

    def ftruncate(fd: int, size: int) -> None:
        fail("ftruncate")
        os.ftruncate(fd, size)
        stamp(fd)

    def fsync(fd: int) -> None:
        fail("fsync")
        writers.syncs(fd)

    return DiskCalls(open=open_, write=write, ftruncate=ftruncate, fsync=fsync)


@contextmanager
def killed_in_restores(world: "SimWorld") -> Iterator[None]:
    """While the block runs, count the changes of files by restores, and kill the process before the one that the habits
    of the world name. What the rest of the restore would change then fails: a killed process changes nothing.
    """
    files, real_carry_out = world.record.files, FileWriter.carry_out

    def carry_out(self: FileWriter, *args: Any) -> Any:
        files.restoring = True
        before = contents_of(Path(world.workspace))
        try:
            return real_carry_out(self, *args)
        finally:
            files.restoring = False
            if world.killed.is_set() and not world.restarted:
                files.before_kill = before

    def dying(name: str, folder: str) -> Callable[..., Any]:
        real = getattr(os, name)

        def call(*args: Any, **named: Any) -> Any:
            fd = named.get(folder)
            if files.restoring and fd is not None and _is_in(fd, world.workspace):
                files.changes += 1
                if files.changes == world.habits.crash_restore and world.kill():
                    world.model.note("killed in a restore")
                if world.killed.is_set() and not world.restarted:
                    raise OSError(errno.EIO, "this process was killed")
            return real(*args, **named)

        return call

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FileWriter, "carry_out", carry_out)
        patch.setattr(os, "replace", dying("replace", "dst_dir_fd"))
        patch.setattr(os, "unlink", dying("unlink", "dir_fd"))
        patch.setattr(os, "rmdir", dying("rmdir", "dir_fd"))
        yield


def _is_in(fd: int, folder: str) -> bool:
    return os.readlink(f"/proc/self/fd/{fd}").startswith(folder)


def _read_only(fd: int) -> str:
    """Return the path of a read-only descriptor, "" if it can be written."""
    if fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY:
        return ""
    return os.readlink(f"/proc/self/fd/{fd}")


@contextmanager
def reading_fails(model: SimModel, home: Path) -> Iterator[None]:
    """While the block runs, let reading and moving stored files of the home fail as often as the habits of the world
    say. Reads of a writer's own files belong to the faults of writing.
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
        # The probability is higher because few files are moved.
        patch.setattr(os, "rename", failing("rename", str, min(1.0, 10 * often)))
        yield
