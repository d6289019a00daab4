"""Locks between servers of one home that commands cannot take: byte ranges of one file that commands cannot open.

Any process that may read a file may lock it, and could so block every server. So a server locks not the file itself but
a byte of `.locks` whose offset depends on the file's inode. The kernel releases a lock when its holder exits.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from app_server.core.rollout.rollout_names import ARCHIVED, SESSIONS

FILE_NAME = ".locks"
SET_LOCK: int | None = getattr(fcntl, "F_OFD_SETLK", None)
"""Locks of an open file description, not of a process: two writers in one process exclude each other, too. None where
only flock exists; then the rollout itself is locked.
"""

RANGE = struct.Struct("hhqqi4x")
HISTORY_OFFSET = 0
LINES_OFFSET = (1 << 62) + 1
"""Behind all offsets of rollouts."""
BUSY = (errno.EAGAIN, errno.EACCES)
RETRY_SECONDS = 0.005


def home_of(rollout: Path) -> Path | None:
    """Return the home of a rollout; None for one that is stored elsewhere."""
    for folder in rollout.parents:
        if folder.name in (SESSIONS, ARCHIVED):
            return folder.parent
    return None


def lock_rollout(fd: int, path: Path) -> int | None:
    """Lock the rollout exclusively. Returns a descriptor that holds the lock, or None if `fd` itself does.
    Raises `BlockingIOError` if another holder exists, and another `OSError` if the file system does not support locks.
    """
    home = home_of(path)
    if home is None or SET_LOCK is None:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return None
    import hashlib  # noqa: PLC0415 - loads OpenSSL, which lists do without

    status = os.fstat(fd)
    name = hashlib.blake2b(f"{status.st_dev} {status.st_ino}".encode(), digest_size=8)
    return _try(home, 1 + (int.from_bytes(name.digest(), "big") >> 2))


def unlock_rollout(fd: int, lock: int | None) -> None:
    """Release the lock of `lock_rollout`, even if a duplicate of `fd` is still open."""
    if lock is not None:
        os.close(lock)
        return
    with suppress(OSError):
        fcntl.flock(fd, fcntl.LOCK_UN)


def history_lock(home: Path, seconds: float) -> AbstractContextManager[None]:
    """Hold the lock of the message history. Raises `OSError` after this time."""
    return _held(home, HISTORY_OFFSET, seconds)


def lines_lock(home: Path, seconds: float) -> AbstractContextManager[None]:
    """Hold the lock of the files with names and metadata. Raises `OSError` after this time."""
    return _held(home, LINES_OFFSET, seconds)


@contextmanager
def _held(home: Path, offset: int, seconds: float) -> Iterator[None]:
    deadline = time.monotonic() + seconds
    while True:
        try:
            fd = _try(home, offset)
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
