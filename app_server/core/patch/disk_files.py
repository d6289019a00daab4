"""Implements `PatchFiles` on the disk: resolves paths and reads files. Never writes.

It reads only regular files up to a maximum size, and none of the kernel's, so it neither hangs nor reads forever. The
calls block as long as the file system does: call them in a thread.
"""

from __future__ import annotations

import errno
import os
import stat

from app_server.core.patch.patch_error import PatchError, os_reason
from app_server.core.patch.planner import NoSnapshot, Snapshot

MAX_FILE_BYTES = 16 * 1024 * 1024
"""Patches do not edit larger files: a diff of them takes seconds."""

KERNEL_ROOTS = ("/proc/", "/sys/")
"""Their files claim to be regular, and describe the server process itself."""

NOT_REGULAR = "not a regular file"
TOO_LARGE = f"the file is larger than {MAX_FILE_BYTES // (1024 * 1024)} MiB"
NO_FILE = (errno.ENOENT,)


class DiskFiles:
    def resolve_path(self, path: str) -> str:
        if "\0" in path:
            raise PatchError("a path in the patch holds a NUL character")
        try:
            return os.path.realpath(path)
        except UnicodeEncodeError as error:
            raise PatchError("a path in the patch is not valid Unicode") from error
        except OSError as error:
            raise PatchError(f"Failed to read {path}: {os_reason(error)}") from error

    def read_file(self, real: str) -> Snapshot | NoSnapshot:
        return read_regular(real)


def read_regular(path: str) -> Snapshot | NoSnapshot:
    """The file at `path`, which must be a real path: a link is refused."""
    if path.startswith(KERNEL_ROOTS):
        return NoSnapshot(NOT_REGULAR)
    try:
        kind = os.lstat(path).st_mode
        if not stat.S_ISREG(kind):
            return _irregular(kind)
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError as error:
        return NoSnapshot(os_reason(error), absent=error.errno in NO_FILE)
    try:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode):
            return NoSnapshot(NOT_REGULAR)
        content = _read_all(fd, info.st_size)
    except OSError as error:
        return NoSnapshot(os_reason(error))
    finally:
        os.close(fd)
    if content is None:
        return NoSnapshot(TOO_LARGE)
    return Snapshot(content, stat.S_IMODE(info.st_mode), os.access(path, os.W_OK, effective_ids=_EFFECTIVE))


_EFFECTIVE = os.access in os.supports_effective_ids


def _irregular(kind: int) -> NoSnapshot:
    if stat.S_ISDIR(kind):
        return NoSnapshot(f"{os.strerror(errno.EISDIR)} (os error {errno.EISDIR})")
    return NoSnapshot(NOT_REGULAR)


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
