"""Implements `PatchFiles` on the disk: resolves paths and reads files. Never writes.

It reads only regular files up to a maximum size, none of the kernel's and no credentials, so it neither hangs nor reads
forever, and no patch shows or tests what commands may not read. The calls block as long as the file system does: call
them in a thread.
"""

from __future__ import annotations

import errno
import os
import stat

from app_server.beneath import Beneath, RefusedName, TooLarge, read_up_to
from app_server.core.patch.patch_error import PatchError, os_reason
from app_server.core.patch.planner import NoSnapshot, Snapshot
from app_server.core.real_path import followed_path

MAX_FILE_BYTES = 16 * 1024 * 1024
"""Patches do not edit larger files: a diff of them takes seconds."""

KERNEL_ROOTS = ("/proc/", "/sys/")
"""Their files claim to be regular, and describe the server process itself."""

NOT_REGULAR = "not a regular file"
TOO_LARGE = f"the file is larger than {MAX_FILE_BYTES // (1024 * 1024)} MiB"


class DiskFiles:
    def __init__(self, home: str | None) -> None:
        """`home` is the server's, whose credentials are not read; a command has None, as it may not read them."""
        self._home = home

    def resolve_path(self, path: str) -> str:
        if "\0" in path:
            raise PatchError("a path in the patch holds a NUL character")
        try:
            return followed_path(path)
        except UnicodeEncodeError as error:
            raise PatchError("a path in the patch is not valid Unicode") from error
        except OSError as error:
            raise PatchError(f"Failed to read {path}: {os_reason(error)}") from error

    def read_file(self, real: str) -> Snapshot | NoSnapshot:
        return read_regular(real, self._home)


def read_regular(path: str, home: str | None) -> Snapshot | NoSnapshot:
    """Read the file at `path`, which must be a real path: a link is refused."""
    if path.startswith(KERNEL_ROOTS):
        return NoSnapshot(NOT_REGULAR)
    try:
        with Beneath("/", home) as disk, disk.opened(path) as (descriptor, status):
            content = read_up_to(descriptor, MAX_FILE_BYTES, path)
            mode = stat.S_IMODE(status.st_mode)
    except TooLarge:
        return NoSnapshot(TOO_LARGE)
    except RefusedName as refused:
        return NoSnapshot(refused.strerror or NOT_REGULAR)
    except OSError as error:
        return NoSnapshot(os_reason(error), absent=error.errno == errno.ENOENT)
    return Snapshot(content, mode, os.access(path, os.W_OK, effective_ids=_EFFECTIVE))


_EFFECTIVE = os.access in os.supports_effective_ids
