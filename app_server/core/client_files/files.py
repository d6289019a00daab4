"""Files for a client, with the rights of the user: read, written, listed, removed and copied.

Synchronous, for worker threads. What is read is bounded. Links are copied as links; in a copied directory pipes,
devices and sockets are left out. Errors are those of the system (OSError), or FileRefused where the request itself is
the reason.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Callable
from functools import partial

from msgspec import Struct

from app_server.beneath import READ_SIZE, TooLarge, read_up_to
from app_server.core.client_files.opening import opened, replace_content, write_all
from app_server.core.errors import FileRefused

MAX_READ_BYTES = 48 << 20
"""Of one file. As much as a client can write with one message of 64 MiB."""
MAX_ENTRIES = 200_000
"""Names of one directory."""

_UNSHOWABLE = re.compile("[\ud800-\udfff]")


class Metadata(Struct, frozen=True):
    is_directory: bool
    is_file: bool
    is_symlink: bool
    created_at_ms: int
    """0 where the system does not say."""
    modified_at_ms: int


class DirectoryEntry(Struct, frozen=True):
    """Entry of a directory. The target of a link counts; a link that leads nowhere is neither."""

    file_name: str
    is_directory: bool
    is_file: bool


Stop = Callable[[], bool]


class CopyStopped(Exception):
    """Nobody waits for the copy any more."""


class ClientFiles(Struct, frozen=True):
    """Operations of a client on files; the secrets in `home` are not among them."""

    home: str

    def read(self, path: str) -> bytes:
        with opened(path, self.home) as (descriptor, info):
            if info.st_size > MAX_READ_BYTES:
                raise _too_large(path)
            try:
                return read_up_to(descriptor, MAX_READ_BYTES, path)
            except TooLarge:
                raise _too_large(path) from None

    def write(self, path: str, data: bytes) -> None:
        replace_content(path, partial(write_all, data=data), len(data))

    def create_directory(self, path: str, *, recursive: bool) -> None:
        """Create a directory, those above it too if `recursive`; then it may exist already."""
        if recursive:
            os.makedirs(path, exist_ok=True)
        else:
            os.mkdir(path)

    def metadata(self, path: str) -> Metadata:
        info = os.stat(path)
        born = getattr(info, "st_birthtime", 0)
        return Metadata(
            is_directory=stat.S_ISDIR(info.st_mode),
            is_file=stat.S_ISREG(info.st_mode),
            is_symlink=os.path.islink(path),
            created_at_ms=int(born * 1000),
            modified_at_ms=info.st_mtime_ns // 1_000_000,
        )

    def list(self, path: str) -> list[DirectoryEntry]:
        """List a directory by name. Bytes of a name that are no text are shown as U+FFFD."""
        found: list[DirectoryEntry] = []
        with os.scandir(path) as entries:
            for entry in entries:
                if len(found) == MAX_ENTRIES:
                    raise FileRefused(f"path `{path}` has more than {MAX_ENTRIES:,} entries", "too_large")
                name = _UNSHOWABLE.sub("\ufffd", entry.name)
                found.append(DirectoryEntry(name, _leads_to(entry.is_dir), _leads_to(entry.is_file)))
        found.sort(key=lambda entry: entry.file_name)
        return found

    def remove(self, path: str, *, recursive: bool, force: bool) -> None:
        """Remove a file or directory; of a link not what it leads to. `force`: nothing there is no error."""
        if os.path.realpath(path) == "/":
            raise FileRefused("the root directory is not removed")
        try:
            if not stat.S_ISDIR(os.lstat(path).st_mode):
                os.unlink(path)
            elif recursive:
                shutil.rmtree(path)
            else:
                os.rmdir(path)
        except FileNotFoundError:
            if not force:
                raise
        except RecursionError:
            raise FileRefused(f"path `{path}` is nested too deeply to be removed", "too_large") from None

    def copy(self, source: str, destination: str, stop: Stop, *, recursive: bool) -> None:
        """Copy until it is done, or nobody waits for it any more: then it raises CopyStopped."""
        mode = os.lstat(source).st_mode
        if stat.S_ISLNK(mode):
            os.symlink(os.readlink(source), destination)
        elif stat.S_ISREG(mode):
            self._copy_file(source, destination, stop)
        elif not stat.S_ISDIR(mode):
            raise FileRefused("fs/copy only supports regular files, directories, and symlinks")
        elif not recursive:
            raise FileRefused("fs/copy requires recursive: true when sourcePath is a directory")
        else:
            self._copy_tree(source, destination, stop)

    def _copy_tree(self, source: str, destination: str, stop: Stop) -> None:
        real, target = os.path.realpath(source), os.path.realpath(destination)
        if target == real or target.startswith(real.rstrip("/") + "/"):
            raise FileRefused("fs/copy cannot copy a directory to itself or one of its descendants")
        pending = [(source, destination)]
        while pending:
            folder, copied = pending.pop()
            os.makedirs(copied, exist_ok=True)
            with os.scandir(folder) as entries:
                for entry in entries:
                    _check(stop)
                    target = os.path.join(copied, entry.name)
                    if entry.is_symlink():
                        os.symlink(os.readlink(entry.path), target)
                    elif entry.is_dir(follow_symlinks=False):
                        pending.append((entry.path, target))
                    elif entry.is_file(follow_symlinks=False):
                        self._copy_file(entry.path, target, stop)

    def _copy_file(self, source: str, destination: str, stop: Stop) -> None:
        with opened(source, self.home) as (descriptor, info):
            if os.path.exists(destination) and os.path.samestat(info, os.stat(destination)):
                return
            rights = stat.S_IMODE(info.st_mode) & 0o777

            def fill(target: int) -> None:
                os.lseek(descriptor, 0, os.SEEK_SET)
                while part := os.read(descriptor, READ_SIZE):
                    _check(stop)
                    write_all(target, part)

            replace_content(destination, fill, info.st_size, rights)


def _check(stop: Stop) -> None:
    if stop():
        raise CopyStopped


def _too_large(path: str) -> FileRefused:
    return FileRefused(f"path `{path}` is larger than {MAX_READ_BYTES:,} bytes", "too_large")


def _leads_to(is_kind: Callable[[], bool]) -> bool:
    try:
        return is_kind()
    except OSError:  # a link in a circle
        return False
