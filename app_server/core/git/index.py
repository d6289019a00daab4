"""Reads git's index, and finds changed files in the working tree by their status alone.

To compare contents, git would run filters; a snapshot only needs to know which files may have changed.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path

from protocol.records import dataclass

SUBMODULE = 0o160000
SYMLINK = 0o120000
_SKIP_WORKTREE = 0x40000000

_ENTRY = re.compile(
    rb"(\d{6}) ([0-9a-f]+) (\d)\t([^\0]*)\0  ctime: \d+:\d+\n  mtime: (\d+):(\d+)\n  dev: \d+\tino: \d+\n"
    rb"  uid: \d+\tgid: \d+\n  size: (\d+)\tflags: ([0-9a-f]+)\n"
)

LIST_INDEX = ("ls-files", "--stage", "--debug", "-z")
"""The command whose output `parse_index` parses. It reads only the index."""


@dataclass(frozen=True, slots=True)
class IndexEntry:
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


@dataclass(frozen=True, slots=True)
class WorktreeFile:
    """A file of the working tree, with the mode that git would store."""

    path: bytes
    mode: int
    size: int
    mtime_ns: int


class Worktree:
    """Reads the status of files below a root, without following links to folders."""

    def __init__(self, root: Path) -> None:
        self._root = os.fsencode(root)
        self._real_folders: dict[bytes, bool] = {b"": True}

    def file(self, path: bytes) -> WorktreeFile | None:
        """The file or link at `path`; None for types that git does not store."""
        if not self._is_real_folder(path.rpartition(b"/")[0]):
            return None
        try:
            status = os.lstat(os.path.join(self._root, path))
        except (OSError, ValueError):
            return None
        if stat.S_ISLNK(status.st_mode):
            mode = SYMLINK
        elif stat.S_ISREG(status.st_mode):
            mode = 0o100755 if status.st_mode & 0o100 else 0o100644
        else:
            return None
        return WorktreeFile(path, mode, status.st_size, status.st_mtime_ns)

    def _is_real_folder(self, folder: bytes) -> bool:
        known = self._real_folders.get(folder)
        if known is None:
            known = self._is_real_folder(folder.rpartition(b"/")[0]) and self._is_folder(folder)
            self._real_folders[folder] = known
        return known

    def _is_folder(self, folder: bytes) -> bool:
        try:
            return stat.S_ISDIR(os.lstat(os.path.join(self._root, folder)).st_mode)
        except OSError:
            return False


@dataclass(frozen=True, slots=True)
class Changes:
    """How the working tree differs from the index. Deleted files are in neither part."""

    kept: tuple[IndexEntry, ...]
    changed: tuple[WorktreeFile, ...]


def compare(
    worktree: Worktree, entries: Iterable[IndexEntry], index_mtime_ns: int, prefix: bytes = b""
) -> Changes:
    """Which tracked files below `prefix` may have changed. Slow: use a thread."""
    kept: list[IndexEntry] = []
    changed: dict[bytes, WorktreeFile] = {}
    for entry in entries:
        if entry.mode == SUBMODULE or entry.skip_worktree or not entry.path.startswith(prefix):
            if entry.stage == 0:
                kept.append(entry)
            continue
        file = worktree.file(entry.path)
        if file is None:
            continue
        if _is_unchanged(entry, file, index_mtime_ns):
            kept.append(entry)
        else:
            changed[entry.path] = file
    return Changes(tuple(kept), tuple(changed.values()))


def _is_unchanged(entry: IndexEntry, file: WorktreeFile, index_mtime_ns: int) -> bool:
    return (
        entry.stage == 0
        and (file.mode, file.size & 0xFFFFFFFF, file.mtime_ns) == (entry.mode, entry.size, entry.mtime_ns)
        # A file with the timestamp of the index may have changed again within that timestamp's resolution.
        and file.mtime_ns < index_mtime_ns
    )
