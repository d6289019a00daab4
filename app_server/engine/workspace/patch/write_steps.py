"""Steps of writing a patch, the undo of each step, and the journal by which another process can undo them. Imports only
the standard library.

A step replaces or removes one name in one folder. From any stage of a step, the old file can be restored by renames
alone. The journal contains the steps of a patch before they are taken, so that the next writer can undo the work of a
killed one.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # not imported at run time: the import would take longer than everything else
    from collections.abc import Iterator
    from typing import Any

PREFIX = ".apply-patch-"
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
if sys.platform == "linux":
    DIRECTORY |= os.O_PATH  # going through a directory requires no right to list it


class WriteStep:
    """The replacement or removal of one name in one directory."""

    __slots__ = ("backup", "before", "doing", "folder", "name", "staged", "temp")

    def __init__(
        self, folder: str, name: str, temp: str, staged: list[int] | None = None, doing: str = ""
    ) -> None:
        self.folder = folder
        self.name = name
        self.temp = temp
        """Name of the temporary file with the new content."""
        self.backup = temp + ".old"
        """Second name of the old file, which is needed until the patch cannot be undone any more."""
        self.staged = staged
        """Device and inode of the new file; None for a removal."""
        self.before: list[int] | None = None
        """Stamp of the checked file; None if there was no file."""
        self.doing = doing


class OpenFolders:
    """Directories that a patch opened, by path, and directories that it created."""

    def __init__(self) -> None:
        self._open: dict[str, int] = {}
        self._created: list[tuple[int, str]] = []
        """Descriptor of the parent and name, for each created directory."""

    def __getitem__(self, path: str) -> int:
        """Return the descriptor of an open directory."""
        return self._open[path]

    def open(self, path: str, *, create: bool = False) -> int:
        """Return a descriptor of the directory at `path`, opened from the root without following links."""
        if path in self._open:
            return self._open[path]
        fd = os.open("/", DIRECTORY)
        for name in path.split("/"):
            if name:
                try:
                    inner = self._step_into(fd, name, create=create)
                finally:
                    os.close(fd)
                fd = inner
        self._open[path] = fd
        return fd

    def _step_into(self, fd: int, name: str, *, create: bool) -> int:
        try:
            return os.open(name, DIRECTORY, dir_fd=fd)
        except FileNotFoundError:
            if not create:
                raise
        os.mkdir(name, 0o777, dir_fd=fd)
        self._created.append((os.dup(fd), name))
        return os.open(name, DIRECTORY, dir_fd=fd)

    def remove_created(self) -> None:
        """Remove the created directories that are empty."""
        for fd, name in reversed(self._created):
            with contextlib.suppress(OSError):
                os.rmdir(name, dir_fd=fd)

    def sync(self) -> None:
        for fd in self._open.values():
            sync_folder(fd)

    def close(self) -> None:
        for fd in (*self._open.values(), *(fd for fd, _ in self._created)):
            os.close(fd)


class PatchJournal:
    """A write-ahead log with one line per step. It is locked as long as its writer lives."""

    def __init__(self, folder: int, name: str, *, create: bool = True) -> None:
        self.folder = folder
        self.name = name
        flags = os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        self.fd = os.open(name, flags | (os.O_CREAT | os.O_EXCL if create else 0), 0o600, dir_fd=folder)
        try:
            fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self.fd)
            raise

    def append_record(self, record: dict[str, Any]) -> None:
        write_all(self.fd, json.dumps(record).encode("ascii") + b"\n")

    def read_records(self) -> list[dict[str, Any]]:
        """Return the complete lines. A killed writer may have left a partial one."""
        lines = read_up_to(self.fd, 1 << 24).split(b"\n")[:-1]
        return [json.loads(line) for line in lines]

    def sync(self) -> None:
        os.fsync(self.fd)

    def remove(self) -> None:
        with contextlib.suppress(OSError):
            os.unlink(self.name, dir_fd=self.folder)

    def close(self) -> None:
        os.close(self.fd)


def recover(folders: OpenFolders, cwd: str) -> None:
    """Undo the incomplete patches of killed writers in this directory."""
    try:
        folder = folders.open(cwd)
        with readable(folder) as real:
            names = os.listdir(real)
    except OSError:
        return
    for name in sorted(names):
        if name.startswith(PREFIX) and name.endswith(".journal"):
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                recover_one(folders, folder, name)


def recover_one(folders: OpenFolders, folder: int, name: str) -> None:
    journal = PatchJournal(folder, name, create=False)
    try:
        records = journal.read_records()
        done = any(record.get("done") for record in records)
        for record in reversed([record for record in records if "temp" in record]):
            step = WriteStep(record["folder"], record["name"], record["temp"], record["staged"])
            if "/" in step.name + step.temp or not step.temp.startswith(PREFIX):
                continue
            with contextlib.suppress(OSError):
                undo_step(folders.open(step.folder), step, forward=done)
        journal.remove()
    finally:
        journal.close()


def undo_step(fd: int, step: WriteStep, *, forward: bool = False) -> None:
    """Restore the old file from any stage of the step; with `forward`, keep the new file. Idempotent."""
    if not forward:
        now = identity(fd, step.name)
        if identity(fd, step.backup) is not None and (now is None or now == step.staged):
            os.rename(step.backup, step.name, src_dir_fd=fd, dst_dir_fd=fd)
        elif now is not None and now == step.staged:
            os.unlink(step.name, dir_fd=fd)
    for name in (step.temp, step.backup):
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=fd)


def identity(fd: int, name: str) -> list[int] | None:
    try:
        info = os.stat(name, dir_fd=fd, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return [info.st_dev, info.st_ino]


def stamp(info: os.stat_result) -> list[int]:
    return [info.st_dev, info.st_ino, info.st_mtime_ns, info.st_size]


def write_all(fd: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(fd, view) :]


def read_up_to(fd: int, size: int) -> bytes:
    pieces = []
    while size > 0 and (piece := os.read(fd, min(size, 1 << 20))):
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def sync_folder(fd: int) -> None:
    """Flush the names in a directory, if the file system supports it. The contents are flushed already."""
    with contextlib.suppress(OSError), readable(fd) as real:
        os.fsync(real)


@contextlib.contextmanager
def readable(fd: int) -> Iterator[int]:
    """Open a descriptor of the same directory that permits listing and flushing."""
    real = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=fd)
    try:
        yield real
    finally:
        os.close(real)
