"""Reading and writing the few small files of the home without being fooled by what lies at their names.

A FIFO would hang a plain `open`, a device never ends, a half-written file loses a user's settings. So: only
regular files, never more than a stated size, and a write is seen whole or not at all, also after a power
cut.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path


class UnreadableFileError(Exception):
    """The name exists but is not something to read. The text is a clause: `it is a FIFO`."""


def read_regular_file(path: Path, limit: int) -> bytes | None:
    """The content of a regular file of at most `limit` bytes; None when nothing has that name."""
    try:
        # O_NONBLOCK: opening a FIFO without a writer returns at once instead of never.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except FileNotFoundError:
        if path.is_symlink():
            raise UnreadableFileError("it is a link to a file that does not exist") from None
        return None
    except OSError as error:
        raise UnreadableFileError((error.strerror or "it cannot be opened").lower()) from error
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise UnreadableFileError(f"it is {_kind(mode)}, not a regular file")
        return _read_at_most(descriptor, limit)
    except OSError as error:
        raise UnreadableFileError((error.strerror or "it cannot be read").lower()) from error
    finally:
        os.close(descriptor)


def write_file_atomically(path: Path, data: bytes, mode: int) -> None:
    """Replace `path` by a file with this content and mode; a reader sees the old file or the new one.

    A symbolic link at `path` is replaced, not followed. Raises OSError, and then nothing has changed.
    """
    import tempfile  # noqa: PLC0415  most servers never write one, and it brings a lot

    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make a rename or removal in `folder` durable. File systems that cannot are left to themselves."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _read_at_most(descriptor: int, limit: int) -> bytes:
    parts: list[bytes] = []
    left = limit + 1
    while left and (part := os.read(descriptor, min(left, 1 << 20))):
        parts.append(part)
        left -= len(part)
    if not left:
        raise UnreadableFileError(f"it is larger than {limit:,} bytes")
    return b"".join(parts)


def _kind(mode: int) -> str:
    if stat.S_ISDIR(mode):
        return "a directory"
    if stat.S_ISFIFO(mode):
        return "a FIFO"
    return "a device or socket"
