"""Reads and writes the few small files of the home safely, whatever type of file is at their paths.

A plain `open` blocks on a FIFO, a device never ends, and a partly written file loses a user's settings. So this module
reads only regular files up to a given size, and its writes are atomic, even across a power failure.
"""

from __future__ import annotations

import fcntl
import os
import stat
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from app_server.engine.support.engine_errors import describe
from app_server.engine.support.rooted_fs import TooLarge, read_up_to

STAGED = ".staged-"
"""Part of a temporary file's name, between the name of the target and random characters."""


class UnreadableFileError(Exception):
    """The path exists but is not readable. The text is a clause: `it is a FIFO`."""


def read_regular_file(path: Path, limit: int, *, private: bool = False) -> bytes | None:
    """Return the content of a regular file of at most `limit` bytes; None if it does not exist. Raises
    UnreadableFileError.

    A `private` file must belong to the user, and no other user may have rights to it.
    """
    try:
        # With O_NONBLOCK, opening a FIFO without a writer does not block.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except FileNotFoundError:
        if path.is_symlink():
            raise UnreadableFileError("it is a link to a file that does not exist") from None
        return None
    except OSError as error:
        raise UnreadableFileError(describe(error)) from error
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise UnreadableFileError(f"it is {_kind(found.st_mode)}, not a regular file")
        if private and found.st_uid != os.geteuid():
            raise UnreadableFileError("it belongs to another user")
        if private and (others := found.st_mode & 0o077):
            raise UnreadableFileError(f"others have rights to it ({others:03o}; expected mode 600)")
        return read_up_to(descriptor, limit, str(path))
    except TooLarge:
        raise UnreadableFileError(f"it is larger than {limit:,} bytes") from None
    except OSError as error:
        raise UnreadableFileError(describe(error)) from error
    finally:
        os.close(descriptor)


def write_file_atomically(path: Path, data: bytes, mode: int) -> None:
    """Replace `path` by a file with this content and mode; a reader sees the old file or the new one.

    A symbolic link at `path` is replaced, not followed. If the function raises OSError, nothing has changed.
    """
    _publish(path, data, mode, os.replace)


def create_file_atomically(path: Path, data: bytes, mode: int) -> None:
    """Create a file with this content and mode; a reader sees none or all of it. Raises FileExistsError if the path
    exists already, and OSError.
    """
    _publish(path, data, mode, os.link)


def _publish(path: Path, data: bytes, mode: int, put: Callable[[Path, Path], None]) -> None:
    """Write a file with a temporary name, and move or link it to `path`."""
    prefix = f".{path.name}{STAGED}"
    _remove_leftovers(path.parent, prefix)
    descriptor, temporary = _new_file(path.parent, prefix)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            put(temporary, path)  # while the temporary file is locked
    finally:
        with suppress(OSError):  # after a rename there is nothing to remove
            temporary.unlink()
    sync_folder(path.parent)


def _new_file(folder: Path, prefix: str) -> tuple[int, Path]:
    """Create a temporary file that is locked as long as it is open."""
    while True:
        descriptor, name = tempfile.mkstemp(prefix=prefix, dir=folder)
        taken = False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:  # without locks, no other server removes the file
            taken = isinstance(error, BlockingIOError)
        if not taken and os.fstat(descriptor).st_nlink:
            return descriptor, Path(name)
        os.close(descriptor)  # another server took the file for a leftover


def _remove_leftovers(folder: Path, prefix: str) -> None:
    """Remove the temporary files of writers that were killed: those that are not locked."""
    for name in os.listdir(folder):
        if not name.startswith(prefix):
            continue
        with suppress(OSError):
            descriptor = os.open(folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.unlink(folder / name)
            finally:
                os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Make a rename or removal in `folder` durable, if the file system supports it."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _kind(mode: int) -> str:
    if stat.S_ISDIR(mode):
        return "a directory"
    if stat.S_ISFIFO(mode):
        return "a FIFO"
    return "a device or socket"
