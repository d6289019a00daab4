"""Files of a working tree as git sees them: finds those that differ from the index by their status, and stores their
contents as git objects.

Git is not used to compare contents, because it would run filters. Git is not given names in the working tree either,
because it would follow links. A file is opened below the root of the working tree, and its content is written as a
loose object.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import chain

from msgspec import Struct

from app_server.engine.support.engine_errors import GitError
from app_server.engine.support.rooted_fs import READ_SIZE, RefusedName, RootDir
from app_server_protocol.values import replace

UNKNOWN = 0
"""Mode of a file that git does not store, or whose status cannot be read."""
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
    """Mode that git would store; `UNKNOWN` if git does not store the file."""
    bits: int
    """Permission bits of the file."""
    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int

    @property
    def signature(self) -> Signature:
        """Values that change with each change of the file: no program can set back the status change time."""
        return self.mode, self.size, self.mtime_ns, self.ctime_ns, self.inode


def look_at(worktree: RootDir, path: bytes) -> WorktreeFile | None:
    """Return the file or link at `path`; None if there is nothing, or a folder, which git does not store by itself."""
    try:
        status = worktree.stat(path)
    except OSError as error:
        absent = error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
        return None if absent else WorktreeFile(path, UNKNOWN, 0, 0, 0, 0, 0)
    return None if stat.S_ISDIR(status.st_mode) else worktree_file(path, status)


def worktree_file(path: bytes, status: os.stat_result) -> WorktreeFile:
    """Return the file at `path`, from its status."""
    if stat.S_ISLNK(status.st_mode):
        mode = SYMLINK
    elif stat.S_ISREG(status.st_mode):
        mode = 0o100755 if status.st_mode & 0o100 else 0o100644
    else:
        mode = UNKNOWN
    bits, size = stat.S_IMODE(status.st_mode), status.st_size
    return WorktreeFile(path, mode, bits, size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)


class Changes(Struct, frozen=True):
    """Differences of the working tree from the index. Deleted files are in neither part."""

    kept: tuple[IndexEntry, ...]
    changed: tuple[tuple[WorktreeFile, str], ...]
    """Files that may have changed, each with its object id in the index."""
    private: tuple[bytes, ...]
    """Paths of the files in `kept` that only their owner may read."""


def compare(
    worktree: RootDir,
    entries: Iterable[IndexEntry],
    index_mtime_ns: int,
    prefix: bytes = b"",
    since_ns: int | None = None,
) -> Changes:
    """Find the tracked files below `prefix` that may have changed. Slow: call it in a thread.

    Without `since_ns`, the status in the index is trusted. With it, the status is not trusted for files that changed
    since.
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


CHANGED = "it was written while it was read"

Pieces = Callable[[], Iterator[bytes]]
"""Function that yields the content of one file. Each call reads it again."""

UNREADABLE = (errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EINVAL, errno.EISDIR)
"""Errors that concern one file only, so that other files may be readable."""


class FileChanged(OSError):
    """The file was written while it was read."""


class Blobs:
    """Computes the object ids of files, and stores their contents in a folder of objects."""

    def __init__(self, worktree: RootDir, *, sha256: bool, until: float) -> None:
        """Read files below `worktree`. `until`: the monotonic time after which reading raises `TimeoutError`."""
        self._worktree, self._until = worktree, until
        self._new_hash = hashlib.sha256 if sha256 else hashlib.sha1

    def id_of(self, path: bytes) -> tuple[int, str] | None:
        """Return mode and object id of the present file at `path`; None if there is nothing, or a folder. Raises
        `OSError`.
        """
        file = look_at(self._worktree, path)
        if file is None:
            return None
        with self._content(file) as (opened, pieces):
            return opened.mode, self._digest(opened, pieces)

    def keep(self, file: WorktreeFile, objects: RootDir, known: str | None) -> tuple[WorktreeFile, str]:
        """Write the content of a file to `objects`, unless its id is `known` there. Return the file that was opened,
        and its id. Raises `OSError` if it cannot be read, `GitError` if it cannot be written.
        """
        with self._content(file) as (opened, pieces):
            object_id = self._digest(opened, pieces)
            if object_id != known and not has_object(objects, object_id):
                try:
                    with objects.staged(object_name(object_id), 0o444, objects) as object_file:
                        object_file.writelines(self._deflated(opened, pieces, object_id))
                except (FileChanged, TimeoutError):
                    raise
                except OSError as error:
                    raise GitError(f"an object cannot be written: {error.strerror}") from error
            return opened, object_id

    def _deflated(self, file: WorktreeFile, pieces: Pieces, object_id: str) -> Iterator[bytes]:
        """Yield the compressed object with this id. Raises `FileChanged` if the content has changed in the meantime."""
        packed, content = zlib.compressobj(1), self._new_hash()
        for piece in chain([_head(file.size)], pieces()):
            content.update(piece)
            yield packed.compress(piece)
        if content.hexdigest() != object_id:
            raise FileChanged(errno.EAGAIN, CHANGED, os.fsdecode(file.path))
        yield packed.flush()

    def _digest(self, file: WorktreeFile, pieces: Pieces) -> str:
        content, size = self._new_hash(_head(file.size)), 0
        for piece in pieces():
            content.update(piece)
            size += len(piece)
        if size != file.size:
            raise FileChanged(errno.EAGAIN, CHANGED, os.fsdecode(file.path))
        return content.hexdigest()

    @contextmanager
    def _content(self, file: WorktreeFile) -> Iterator[tuple[WorktreeFile, Pieces]]:
        if file.mode == SYMLINK:
            target = self._worktree.read_link(file.path)
            yield replace(file, size=len(target)), lambda: iter([target])
            return
        with self._worktree.opened(file.path) as (descriptor, status):
            yield worktree_file(file.path, status), partial(self._read, descriptor)

    def _read(self, descriptor: int) -> Iterator[bytes]:
        os.lseek(descriptor, 0, os.SEEK_SET)
        while True:
            if time.monotonic() > self._until:
                raise TimeoutError
            piece = os.read(descriptor, READ_SIZE)
            if not piece:
                return
            yield piece


def has_object(objects: RootDir, object_id: str) -> bool:
    """Return whether there is a loose object with this id."""
    try:
        objects.stat(object_name(object_id))
    except OSError:
        return False
    return True


def object_name(object_id: str) -> str:
    """Return the path of a loose object, relative to the folder of objects."""
    return f"{object_id[:2]}/{object_id[2:]}"


def move_objects(source: RootDir, objects: RootDir) -> None:
    """Copy the loose objects that git wrote to a folder of this server to those of a repository."""
    for folder in source.list():
        for name in source.list(folder):
            place = f"{folder}/{name}"
            if len(folder) == 2 and not has_object(objects, folder + name):
                with source.opened(place) as (descriptor, status):
                    objects.replace(place, os.read(descriptor, status.st_size), 0o444)


def is_of_one_file(error: OSError) -> bool:
    """Return whether an error concerns one file only, so that other files can still be read."""
    return isinstance(error, FileChanged | RefusedName) or error.errno in UNREADABLE


def _head(size: int) -> bytes:
    return b"blob %d\0" % size
