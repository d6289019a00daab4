"""Locks between servers of one home, which commands cannot take: ranges of one file that commands cannot open.

Whoever may read a file may lock it, with flock(2) or as a reader, and so could hold up every server. So what is locked
is never the file itself but its place in `.locks`, a number made of its inode. The kernel ends a lock with its holder.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import stat
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from app_server.core.rollout.names import ARCHIVED, SESSIONS

FILE_NAME = ".locks"
SET_LOCK: int | None = getattr(fcntl, "F_OFD_SETLK", None)
"""Locks of an open file, not of a process: two writers of one process exclude each other, too. None: only flock, and a
rollout is locked itself.
"""

RANGE = struct.Struct("hhqqi4x")
HISTORY_OFFSET = 0
BUSY = (errno.EAGAIN, errno.EACCES)
RETRY_SECONDS = 0.005


def home_of(rollout: Path) -> Path | None:
    """The home that a rollout is stored in; None for one that lies elsewhere."""
    for folder in rollout.parents:
        if folder.name in (SESSIONS, ARCHIVED):
            return folder.parent
    return None


def lock_rollout(fd: int, path: Path) -> int | None:
    """Makes the holder of `fd` the only one. A descriptor that holds the lock; None where `fd` itself does.
    `BlockingIOError` where there is another, another `OSError` where the file system has no locks.
    """
    home = home_of(path)
    if home is None or SET_LOCK is None:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return None
    status = os.fstat(fd)
    name = hashlib.blake2b(f"{status.st_dev} {status.st_ino}".encode(), digest_size=8)
    return _try(home, 1 + (int.from_bytes(name.digest(), "big") >> 2))


def unlock_rollout(fd: int, lock: int | None) -> None:
    """What `lock_rollout` gave is given up, also where a duplicate of `fd` is still open."""
    if lock is not None:
        os.close(lock)
        return
    with suppress(OSError):
        fcntl.flock(fd, fcntl.LOCK_UN)


@contextmanager
def history_lock(home: Path, seconds: float) -> Iterator[None]:
    """Holds the lock of the message history. `OSError` where it is not to be had in this time."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            fd = _try(home, HISTORY_OFFSET)
            break
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise
        time.sleep(RETRY_SECONDS)
    try:
        yield
    finally:
        os.close(fd)


def _try(home: Path, offset: int) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    fd = os.open(home / FILE_NAME, flags, 0o600)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, f"{FILE_NAME} is not a regular file")
        if SET_LOCK is None:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        else:
            fcntl.fcntl(fd, SET_LOCK, RANGE.pack(fcntl.F_WRLCK, os.SEEK_SET, offset, 1, 0))
    except OSError as error:
        os.close(fd)
        if error.errno in BUSY:
            raise BlockingIOError(errno.EAGAIN, "another server holds the lock") from None
        raise
    except BaseException:
        os.close(fd)
        raise
    return fd
