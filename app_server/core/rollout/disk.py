"""The few calls through which rollouts and journals reach the disk, as a seam for tests that fill it up.

Owns how files are opened: never through a link, never blocking on a pipe, always closed on exec, readable by
their owner only whatever the umask is.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

from app_server.core.rollout.errors import RolloutUnreadable
from protocol.records import dataclass

_SAFE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Disk:
    """What can fail while a conversation is stored."""

    open: Callable[[Path, int, int], int] = os.open
    write: Callable[[int, memoryview], int] = os.write
    ftruncate: Callable[[int, int], None] = os.ftruncate
    fsync: Callable[[int], None] = os.fsync


REAL_DISK = Disk()


def open_for_append(disk: Disk, path: Path, *, create: bool) -> int:
    """A descriptor that appends to a regular file; a new one belongs to its owner alone."""
    if create:
        make_private_folders(path.parent)
    flags = os.O_RDWR | os.O_APPEND | _SAFE | (os.O_CREAT if create else 0)
    fd = disk.open(path, flags, 0o600)
    try:
        require_regular(fd, path)
        if create:
            os.fchmod(fd, 0o600)
    except BaseException:
        os.close(fd)
        raise
    return fd


def open_for_reading(path: Path) -> int:
    """A descriptor of a regular file; raises `OSError` or `RolloutUnreadable`."""
    fd = os.open(path, os.O_RDONLY | _SAFE)
    try:
        require_regular(fd, path)
    except BaseException:
        os.close(fd)
        raise
    return fd


def require_regular(fd: int, path: Path) -> None:
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        raise RolloutUnreadable(f"{path} is not a regular file")


def make_private_folders(folder: Path) -> None:
    """Make `folder` and what is missing above it; the new ones are the owner's alone."""
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for one in reversed(missing):
        one.mkdir(mode=0o700, exist_ok=True)
        one.chmod(0o700)


def size_and_links(fd: int) -> tuple[int, int]:
    status = os.fstat(fd)
    return status.st_size, status.st_nlink


def end_of_text(fd: int, size: int) -> int:
    """Where a file ends that a power loss may have padded with NUL bytes."""
    while size > 0:
        start = max(0, size - 65536)
        tail = os.pread(fd, size - start, start).rstrip(b"\0")
        if tail:
            return start + len(tail)
        size = start
    return 0


def describe(error: OSError) -> str:
    """Why the disk refused, without a path."""
    return (error.strerror or type(error).__name__).lower()
