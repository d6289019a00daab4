"""Opens what a client names: a file to read, and a file to write, whole or not at all where that is possible.

Pipes and devices are refused before they are opened: they could wait, never end, or do something by being opened. So
are the credentials in the server's home, whatever name leads to them, and what the system shows of processes, where the
server's own environment could be read. This keeps them from being handed on by mistake; a client has other ways.

New content is staged beside the file, which it then replaces. A file that must stay the same one (it has several names,
another owner, or a directory in which nothing can be made) is overwritten, once there is space for all of it. A link
stays; what it leads to is written.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from app_server.beneath import may_hold_secrets
from app_server.core.errors import FileRefused

READING = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


@contextmanager
def opened(path: str, home: str) -> Iterator[tuple[int, os.stat_result]]:
    """Open a regular file; give its descriptor, and what is known of it. Raises FileRefused, OSError."""
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
"""Less the process's umask."""
CANNOT_STAGE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY, errno.ENAMETOOLONG)

Fill = Callable[[int], None]
"""Writes the content to a descriptor that stands at the beginning."""


def replace_content(path: str, fill: Fill, size: int, mode: int | None = None) -> None:
    """Replace the content of a file. `size` is that of the content; `mode` the rights of the file, otherwise those of
    the old one.
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
        with suppress(OSError):  # a group that the user is not in
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
    """Find out that the disk is full while the old content is still there."""
    if size <= before:
        return
    try:
        os.posix_fallocate(descriptor, before, size - before)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            os.ftruncate(descriptor, before)
            raise
