"""Locks of files that last as long as a descriptor is open, in any process. Fast to import.

They belong to the open file description, so a child that inherits the descriptor holds the same lock, also over an
`exec`, and the end of all holders releases it, however they end. Pids are never compared: they are used again.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
import time

SET_LOCK: int | None = getattr(fcntl, "F_OFD_SETLK", None)
"""Command for locks of an open file description, not of a process: two in one process exclude each other, too. None if
the system has only flock, which locks whole files.
"""

RANGE = struct.Struct("hhqqi4x")
BUSY = (errno.EAGAIN, errno.EACCES)

FIRST_PAUSE, LONGEST_PAUSE = 0.001, 0.02
"""Shortest and longest pause between two attempts, in seconds. A hundred waiting processes take less than a tenth of a
processor from the process that they wait for.
"""


class LockHeld(Exception):
    """Another process holds the lock."""


def hold(path: str, seconds: float = 0) -> int:
    """Lock a file, which is made if it does not exist; return the descriptor that holds the lock.

    Waits up to `seconds` for another holder, then raises LockHeld. Raises OSError if there are no locks.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "it is no regular file", path)
    deadline, pause = time.monotonic() + seconds, FIRST_PAUSE
    try:
        while not take(fd):
            if time.monotonic() >= deadline:
                raise LockHeld(path)
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
    except BaseException:
        os.close(fd)
        raise
    return fd


def is_held(path: str) -> bool:
    """Return whether a process holds the lock, also of a file that may only be read; False if that cannot be known."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        if SET_LOCK is None:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
        found = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, RANGE.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))
        return bool(RANGE.unpack(found)[0] != fcntl.F_UNLCK)
    except OSError as error:
        return error.errno in BUSY
    finally:
        os.close(fd)


def take(fd: int, offset: int = 0) -> bool:
    """Lock one byte of an open file. Return False if another process holds it. Raises OSError if there are no locks."""
    try:
        if SET_LOCK is None:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        else:
            fcntl.fcntl(fd, SET_LOCK, RANGE.pack(fcntl.F_WRLCK, os.SEEK_SET, offset, 1, 0))
    except OSError as error:
        if error.errno in BUSY:
            return False
        raise
    return True
