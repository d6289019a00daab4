"""Reads what a patch depends on from the disk: files and their real paths, and the git directories near them.

It reads only regular files up to a maximum size, no files of the kernel and no credentials. So it never hangs or reads
forever, and no patch shows or tests content that commands may not read. It never writes. The calls block as long as the
file system does: call them in a thread.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence

from app_server.engine.support.real_path import followed_path, real_path
from app_server.engine.support.rooted_fs import RefusedName, RootDir, TooLarge, read_up_to
from app_server.engine.workspace.patch.parse import PatchError, os_reason
from app_server.engine.workspace.patch.planner import NoSnapshot, Snapshot

MAX_FILE_BYTES = 16 * 1024 * 1024
"""Maximum size of a file that a patch edits, in bytes: a diff of a larger file takes seconds."""

KERNEL_ROOTS = ("/proc/", "/sys/")
"""Folders of the kernel's files. These claim to be regular files, and describe the server process itself."""

NOT_REGULAR = "not a regular file"
TOO_LARGE = f"the file is larger than {MAX_FILE_BYTES // (1024 * 1024)} MiB"


class DiskFiles:
    def __init__(self, home: str | None) -> None:
        """Read files for patches. `home` is the server's home, whose credentials are not read; None in a command, which
        could not read them anyway.
        """
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
        with RootDir("/", home) as disk, disk.opened(path) as (descriptor, status):
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


POINTER = b"gitdir:"
GIT_LAYOUT = ("HEAD", "objects", "refs")


def git_directories(paths: Sequence[str], roots: Sequence[str], home: str) -> tuple[str, ...]:
    """Return git directories among the parents of `paths`, and targets of `.git` files there, up to the roots."""
    found: dict[str, None] = {}
    for folder in dict.fromkeys(folder for path in paths for folder in _parents(path, roots)):
        if all(os.path.lexists(os.path.join(folder, name)) for name in GIT_LAYOUT):
            found[folder] = None
        target = _pointed_to(folder, home)
        if target is not None:
            found[target] = None
    return tuple(found)


def _parents(path: str, roots: Sequence[str]) -> Iterator[str]:
    """Yield the directories from the parent of `path` up to the outermost root that contains it."""
    holding = [root.rstrip("/") for root in roots if path.startswith(root.rstrip("/") + "/")]
    if not holding:
        return
    outermost = min(holding, key=len)
    folder = os.path.dirname(path)
    while folder.startswith(outermost) and len(folder) > 1:
        yield folder
        folder = os.path.dirname(folder)


def _pointed_to(folder: str, home: str) -> str | None:
    found = read_regular(os.path.join(folder, ".git"), home)
    if not isinstance(found, Snapshot) or not found.content.startswith(POINTER):
        return None
    target = os.fsdecode(found.content.removeprefix(POINTER).split(b"\n")[0].strip())
    if not target or "\0" in target:
        return None
    return real_path(os.path.join(folder, target))
