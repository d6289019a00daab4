"""The disk of a simulated world: a real folder in memory whose calls can fail, and whose files have virtual times."""

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

from app_server.core.rollout.disk import DiskCalls
from tests.simulation.sim_model import SimModel

ERRORS = (errno.ENOSPC, errno.EIO, errno.EROFS, errno.EDQUOT)


def sim_disk(model: SimModel, now: Callable[[], float]) -> DiskCalls:
    """Return calls that fail as often as the habits of the world say, until its faults stop."""
    draws, habits = model.draws, model.habits

    def fail(call: str) -> None:
        if model.faults and draws.chance(f"fault of {call}", habits.disk_faults):
            model.note(f"{call} failed")
            number = draws.pick("errno", ERRORS)
            raise OSError(number, os.strerror(number))

    def stamp(fd: int) -> None:
        if stat.S_ISREG(os.fstat(fd).st_mode):
            os.utime(fd, (now(), now()))

    def open_(path: Path, flags: int, mode: int) -> int:
        fail("open")
        fd = os.open(path, flags, mode)
        stamp(fd)
        return fd

    def write(fd: int, data: memoryview) -> int:
        fail("write")
        part = data
        if model.faults and len(data) > 1 and draws.chance("short write", habits.disk_faults):
            part = data[: 1 + draws.below("written", len(data) - 1)]
            model.note("short write")
        written = os.write(fd, part)
        stamp(fd)
        return written

    def ftruncate(fd: int, size: int) -> None:
        fail("ftruncate")
        os.ftruncate(fd, size)
        stamp(fd)

    def fsync(fd: int) -> None:
        fail("fsync")

    return DiskCalls(open=open_, write=write, ftruncate=ftruncate, fsync=fsync)
