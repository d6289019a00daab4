"""Contents of a working tree as git's objects. Git is given no name in the working tree to open: it would follow links.

A file is opened beneath the root of the working tree, and its content written as a loose object. No filters.
"""

from __future__ import annotations

import errno
import hashlib
import os
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import chain

from app_server.beneath import READ_SIZE, Beneath, RefusedName
from app_server.core.errors import GitError
from app_server.core.git.index import SYMLINK, WorktreeFile, look_at, worktree_file
from protocol.structs import replace

CHANGED = "it was written while it was read"

Pieces = Callable[[], Iterator[bytes]]
"""The content of one file, read anew with each call."""

UNREADABLE = (errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EINVAL, errno.EISDIR)
"""Errors of one file, which others may not have."""


class FileChanged(OSError):
    """The file was written while it was read."""


class Blobs:
    """Finds the object ids of files, and keeps their contents in a folder of objects."""

    def __init__(self, worktree: Beneath, *, sha256: bool, until: float) -> None:
        """`until`: the monotonic time after which reading raises `TimeoutError`."""
        self._worktree, self._until = worktree, until
        self._new_hash = hashlib.sha256 if sha256 else hashlib.sha1

    def id_of(self, path: bytes) -> tuple[int, str] | None:
        """Return mode and object id of what is at `path` now; None for nothing or a folder. Raises `OSError`."""
        file = look_at(self._worktree, path)
        if file is None:
            return None
        with self._content(file) as (opened, pieces):
            return opened.mode, self._digest(opened, pieces)

    def keep(self, file: WorktreeFile, objects: Beneath, known: str | None) -> tuple[WorktreeFile, str]:
        """Write the content of a file to `objects`, unless its id is `known` there. Returns what was opened, with its
        id. Raises `OSError` where it cannot be read, `GitError` where it cannot be written."""
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
        """Give the object that has this id, compressed. Raises `FileChanged` if the content is another one by now."""
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


def has_object(objects: Beneath, object_id: str) -> bool:
    """Tell whether there is a loose object of this id."""
    try:
        objects.stat(object_name(object_id))
    except OSError:
        return False
    return True


def object_name(object_id: str) -> str:
    """Return the name of a loose object in its folder."""
    return f"{object_id[:2]}/{object_id[2:]}"


def move_objects(source: Beneath, objects: Beneath) -> None:
    """Copy loose objects that git wrote to a folder of the server's own to those of a repository."""
    for folder in source.list():
        for name in source.list(folder):
            place = f"{folder}/{name}"
            if len(folder) == 2 and not has_object(objects, folder + name):
                with source.opened(place) as (descriptor, status):
                    objects.replace(place, os.read(descriptor, status.st_size), 0o444)


def is_of_one_file(error: OSError) -> bool:
    """Tell whether an error concerns one file, so that the others can still be looked at."""
    return isinstance(error, FileChanged | RefusedName) or error.errno in UNREADABLE


def _head(size: int) -> bytes:
    return b"blob %d\0" % size
