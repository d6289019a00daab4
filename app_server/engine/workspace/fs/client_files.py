"""Reads, writes, lists, removes and copies files for a client, with the rights of the user. Synchronous, for worker
threads. The size of what is read is limited.

Some files are refused:

1. Pipes and devices are refused before they are opened: they could block, never end, or have an effect when opened.
2. Credentials in the server's home are refused, by any name that leads to them.
3. So are the system's files about processes, which could show the server's own environment.

Refusing the secrets only prevents accidents: a client has other ways to read them. Links are copied as links. In a
copied directory, pipes, devices and sockets are left out. Errors are those of the system (OSError), or FileRefused if
the request itself is the reason.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

from msgspec import Struct

from app_server.engine.support.engine_errors import FileRefused
from app_server.engine.support.real_path import within
from app_server.engine.support.rooted_fs import READ_SIZE, TooLarge, may_hold_secrets, read_up_to

READING = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


@contextmanager
def opened(path: str, home: str) -> Iterator[tuple[int, os.stat_result]]:
    """Open a regular file; yield its descriptor and its status. Raises FileRefused and OSError."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise not_a_file(path)
    descriptor = os.open(path, READING)
    try:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            raise not_a_file(path)
        if may_hold_secrets(descriptor, info, home):
            raise FileRefused(f"path `{path}` may hold secrets of this server and is not read", "secret")
        yield descriptor, info
    finally:
        os.close(descriptor)


def not_a_file(path: str) -> FileRefused:
    return FileRefused(f"path `{path}` is not a file", "not_a_file")


STAGED = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
OVERWRITING = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
NEW_FILE_MODE = 0o666
"""Mode of a new file, before the process's umask is applied."""
CANNOT_STAGE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY, errno.ENAMETOOLONG)

Fill = Callable[[int], None]
"""Function that writes the content to a descriptor, whose position is the beginning of the file."""


def replace_content(path: str, fill: Fill, size: int, mode: int | None = None) -> None:
    """Replace the content of a file. A link stays, and its target is written. `size` is the size of the content. `mode`
    is the mode of the file; None for that of the old file.

    New content is staged beside the file and then replaces it. Some files must stay the same file: they have several
    names, another owner, or a directory in which no file can be created. Such a file is overwritten, once enough space
    is reserved.
    """
    target = os.path.realpath(path)
    try:
        old = os.stat(target)
    except FileNotFoundError:
        _stage_and_rename(target, fill, mode, None)
        return
    if stat.S_ISDIR(old.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(old.st_mode):
        raise not_a_file(path)
    if not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    if old.st_nlink == 1 and old.st_uid == os.geteuid():
        try:
            _stage_and_rename(target, fill, mode, old)
        except OSError as error:
            if error.errno not in CANNOT_STAGE:
                raise
        else:
            return
    _overwrite(target, fill, size, mode)


def write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _stage_and_rename(target: str, fill: Fill, mode: int | None, old: os.stat_result | None) -> None:
    folder, name = os.path.split(target)
    staged = os.path.join(folder, f".{name[:100]}.{secrets.token_hex(6)}.tmp")
    descriptor = os.open(staged, STAGED, NEW_FILE_MODE if old is None else 0o600)
    try:
        try:
            fill(descriptor)
            if mode is not None:
                os.fchmod(descriptor, mode)
            elif old is not None:
                os.fchmod(descriptor, stat.S_IMODE(old.st_mode))
                _keep_group(descriptor, old)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.rename(staged, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(staged)
        raise


def _keep_group(descriptor: int, old: os.stat_result) -> None:
    if os.fstat(descriptor).st_gid != old.st_gid:
        with suppress(OSError):  # the user may not be in that group
            os.fchown(descriptor, -1, old.st_gid)
            os.fchmod(descriptor, stat.S_IMODE(old.st_mode))


def _overwrite(target: str, fill: Fill, size: int, mode: int | None) -> None:
    descriptor = os.open(target, OVERWRITING)
    try:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            raise not_a_file(target)
        _reserve(descriptor, size, info.st_size)
        fill(descriptor)
        os.ftruncate(descriptor, os.lseek(descriptor, 0, os.SEEK_CUR))
        if mode is not None:
            os.fchmod(descriptor, mode)
    finally:
        os.close(descriptor)


def _reserve(descriptor: int, size: int, before: int) -> None:
    """Reserve space on the disk, to find out that it is full while the old content is still there."""
    if size <= before:
        return
    try:
        os.posix_fallocate(descriptor, before, size - before)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            os.ftruncate(descriptor, before)
            raise


MAX_READ_BYTES = 48 << 20
"""Maximum size of a file that is read, in bytes. It is as much as a client can write with one message of 64 MiB."""
MAX_ENTRIES = 200_000
"""Maximum number of names of a directory that is listed."""

_UNSHOWABLE = re.compile("[\ud800-\udfff]")


class Metadata(Struct, frozen=True):
    is_directory: bool
    is_file: bool
    is_symlink: bool
    created_at_ms: int
    """Creation time in milliseconds since 1970; 0 if the system does not know it."""
    modified_at_ms: int


class DirectoryEntry(Struct, frozen=True):
    """An entry of a directory. Of a link, the target counts; a broken link is neither a directory nor a file."""

    file_name: str
    is_directory: bool
    is_file: bool


Stop = Callable[[], bool]


class CopyStopped(Exception):
    """The copy was stopped, because no client waits for it any more."""


class ClientFiles(Struct, frozen=True):
    """File operations of a client. They do not give access to the secrets in `home`."""

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
        """Create a directory. With `recursive`, also those above it; then it may exist already."""
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
        """List a directory, sorted by name. Bytes of a name that are not text are replaced by U+FFFD."""
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
        """Remove a file or directory. A link is removed itself, not its target. With `force`, a missing path is no
        error.
        """
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
        """Copy a file or directory. Raises CopyStopped if `stop` says that no client waits for the copy any more."""
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
        if within(target, real):
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
    except OSError:  # a link leads to itself
        return False
