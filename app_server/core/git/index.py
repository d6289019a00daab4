"""Reads git's index, and finds changed files in the working tree by their status alone.

To compare contents, git would run filters; a snapshot only needs to know which files may have changed. Files are
looked at beneath the root of the working tree, never through a link.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterable

from msgspec import Struct

from app_server.beneath import Beneath

UNKNOWN = 0
"""The mode of what git does not store, or what cannot be looked at."""
SUBMODULE = 0o160000
SYMLINK = 0o120000
_SKIP_WORKTREE = 0x40000000

_ENTRY = re.compile(
    rb"(\d{6}) ([0-9a-f]+) (\d)\t([^\0]*)\0  ctime: \d+:\d+\n  mtime: (\d+):(\d+)\n  dev: \d+\tino: \d+\n"
    rb"  uid: \d+\tgid: \d+\n  size: (\d+)\tflags: ([0-9a-f]+)\n"
)

LIST_INDEX = ("ls-files", "--stage", "--debug", "-z")
"""The command whose output `parse_index` parses. It reads only the index."""


class IndexEntry(Struct, frozen=True):
    """A tracked file in the index."""

    path: bytes
    mode: int
    object_id: str
    stage: int
    mtime_ns: int
    size: int
    skip_worktree: bool


def parse_index(output: bytes) -> list[IndexEntry]:
    return [
        IndexEntry(
            path=path,
            mode=int(mode, 8),
            object_id=object_id.decode(),
            stage=int(stage),
            mtime_ns=int(seconds) * 1_000_000_000 + int(nanoseconds),
            size=int(size),
            skip_worktree=bool(int(flags, 16) & _SKIP_WORKTREE),
        )
        for mode, object_id, stage, path, seconds, nanoseconds, size, flags in _ENTRY.findall(output)
    ]


Signature = tuple[int, int, int, int, int]


class WorktreeFile(Struct, frozen=True):
    """A file or link of the working tree, with the mode that git would store."""

    path: bytes
    mode: int
    """`UNKNOWN` for what git does not store."""
    bits: int
    """Its permission bits."""
    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int

    @property
    def signature(self) -> Signature:
        """What changes with each change of the file; no program can set back the time of the change."""
        return self.mode, self.size, self.mtime_ns, self.ctime_ns, self.inode


def look_at(worktree: Beneath, path: bytes) -> WorktreeFile | None:
    """Return the file or link at `path`. None: there is none, or a folder, which git does not store by itself."""
    try:
        status = worktree.stat(path)
    except OSError as error:
        absent = error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
        return None if absent else WorktreeFile(path, UNKNOWN, 0, 0, 0, 0, 0)
    return None if stat.S_ISDIR(status.st_mode) else worktree_file(path, status)


def worktree_file(path: bytes, status: os.stat_result) -> WorktreeFile:
    """Return what the status says of the file at `path`."""
    if stat.S_ISLNK(status.st_mode):
        mode = SYMLINK
    elif stat.S_ISREG(status.st_mode):
        mode = 0o100755 if status.st_mode & 0o100 else 0o100644
    else:
        mode = UNKNOWN
    bits, size = stat.S_IMODE(status.st_mode), status.st_size
    return WorktreeFile(path, mode, bits, size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)


class Changes(Struct, frozen=True):
    """How the working tree differs from the index. Deleted files are in neither part."""

    kept: tuple[IndexEntry, ...]
    changed: tuple[tuple[WorktreeFile, str], ...]
    """What may have changed, each with its object id in the index."""
    private: tuple[bytes, ...]
    """Of those that are kept, the files that only their owner may read."""


def compare(
    worktree: Beneath,
    entries: Iterable[IndexEntry],
    index_mtime_ns: int,
    prefix: bytes = b"",
    since_ns: int | None = None,
) -> Changes:
    """Find the tracked files below `prefix` that may have changed. Slow: use a thread.

    Without `since_ns`, the index is believed about the status of files; with it, about none that changed since.
    """
    kept: list[IndexEntry] = []
    changed: dict[bytes, tuple[WorktreeFile, str]] = {}
    private: list[bytes] = []
    for entry in entries:
        if entry.mode == SUBMODULE or entry.skip_worktree or not entry.path.startswith(prefix):
            if entry.stage == 0:
                kept.append(entry)
            continue
        file = look_at(worktree, entry.path)
        if file is None:
            continue
        if _is_unchanged(entry, file, index_mtime_ns) and (since_ns is None or file.ctime_ns < since_ns):
            kept.append(entry)
            if not file.bits & 0o077:
                private.append(entry.path)
        else:
            changed[entry.path] = file, entry.object_id
    return Changes(tuple(kept), tuple(changed.values()), tuple(private))


def _is_unchanged(entry: IndexEntry, file: WorktreeFile, index_mtime_ns: int) -> bool:
    return (
        entry.stage == 0
        and (file.mode, file.size & 0xFFFFFFFF, file.mtime_ns) == (entry.mode, entry.size, entry.mtime_ns)
        # A file with the timestamp of the index may have changed again within that timestamp's resolution.
        and file.mtime_ns < index_mtime_ns
    )
