"""The disk as planning sees it: where a path really leads, and what is in the file there. Reads only.

Never hangs and never reads without end: only regular files up to a size, none of the kernel's. The calls
block for as long as the file system does, so an event loop makes them in a thread.
"""

from __future__ import annotations

import errno
import os
import stat

from app_server.core.patch.apply import Snapshot, Unreadable
from app_server.core.patch.errors import PatchError, os_reason

MAX_FILE_BYTES = 16 * 1024 * 1024
"""Larger files are not edited by patches: working out a diff of them takes seconds."""

KERNEL_ROOTS = ("/proc/", "/sys/")
"""Their files claim to be regular, and answer about the server itself."""

NOT_REGULAR = "not a regular file"
TOO_LARGE = f"the file is larger than {MAX_FILE_BYTES // (1024 * 1024)} MiB"
NO_FILE = (errno.ENOENT,)


class RealDisk:
    def resolve(self, path: str) -> str:
        if "\0" in path:
            raise PatchError("a path in the patch holds a NUL character")
        try:
            return os.path.realpath(path)
        except UnicodeEncodeError as error:
            raise PatchError("a path in the patch is not valid Unicode") from error
        except OSError as error:
            raise PatchError(f"Failed to read {path}: {os_reason(error)}") from error

    def read(self, real: str) -> Snapshot | Unreadable:
        return read_regular(real)


def read_regular(path: str) -> Snapshot | Unreadable:
    """The file at `path`, which is a real path: a link at its end is refused."""
    if path.startswith(KERNEL_ROOTS):
        return Unreadable(NOT_REGULAR)
    try:
        kind = os.lstat(path).st_mode
        if not stat.S_ISREG(kind):
            return _irregular(kind)
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError as error:
        return Unreadable(os_reason(error), absent=error.errno in NO_FILE)
    try:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode):
            return Unreadable(NOT_REGULAR)
        content = _read_all(fd, info.st_size)
    except OSError as error:
        return Unreadable(os_reason(error))
    finally:
        os.close(fd)
    if content is None:
        return Unreadable(TOO_LARGE)
    return Snapshot(content, stat.S_IMODE(info.st_mode), os.access(path, os.W_OK, effective_ids=_EFFECTIVE))


_EFFECTIVE = os.access in os.supports_effective_ids


def _irregular(kind: int) -> Unreadable:
    if stat.S_ISDIR(kind):
        return Unreadable(f"{os.strerror(errno.EISDIR)} (os error {errno.EISDIR})")
    return Unreadable(NOT_REGULAR)


def _read_all(fd: int, size: int) -> bytes | None:
    if size > MAX_FILE_BYTES:
        return None
    pieces: list[bytes] = []
    left = MAX_FILE_BYTES + 1
    while left > 0:
        piece = os.read(fd, min(left, 1 << 20))
        if not piece:
            return b"".join(pieces)
        pieces.append(piece)
        left -= len(piece)
    return None
