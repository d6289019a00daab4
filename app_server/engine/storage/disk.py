"""Opens, writes and locks rollouts and journals. The system calls that write are a seam for tests of a full disk. Files
are opened without following links, without blocking on a FIFO, and closed on exec. They are readable only by their
owner, whatever the umask is. Error messages name files, never their content.

Commands cannot take the locks between servers of one home. Any process that may read a file may lock it, and could so
block every server. So a server locks not the file itself but one byte of `.locks`, which commands cannot open. The
offset of the byte depends on the file's inode. The kernel releases a lock when its holder exits.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec import Struct

from app_server.engine.storage.rollout_names import ARCHIVED, SESSIONS, parse_rollout_name
from app_server.engine.support.engine_errors import RolloutBusy, RolloutUnreadable, describe
from app_server.engine.support.filelock import SET_LOCK, take

try:  # `hashlib` has the same function, but loads OpenSSL, which lists do without
    from _blake2 import blake2b
except ImportError:  # the interpreter was built without it
    from hashlib import blake2b

log = logging.getLogger(__name__)

_SAFE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class DiskCalls(Struct, frozen=True):
    """The system calls that may fail while a conversation is stored."""

    open: Callable[[Path, int, int], int] = os.open
    write: Callable[[int, memoryview], int] = os.write
    ftruncate: Callable[[int, int], None] = os.ftruncate
    fsync: Callable[[int], None] = os.fsync


MAX_ROLLOUT_BYTES = 2 * 1024 * 1024 * 1024
REAL_DISK = DiskCalls()


def open_for_append(disk: DiskCalls, path: Path, *, create: bool) -> int:
    """Open a regular file to append to it; a new file is private to its owner."""
    if create:
        make_private_folders(path.parent)
    flags = os.O_RDWR | os.O_APPEND | _SAFE | (os.O_CREAT if create else 0)
    return _regular(disk.open(path, flags, 0o600), path, private=create)


def open_for_reading(path: Path) -> int:
    """Open a regular file for reading. Raises `OSError` or `RolloutUnreadable`."""
    return _regular(os.open(path, os.O_RDONLY | _SAFE), path)


@contextmanager
def opened(path: Path, *, whole: bool = False) -> Iterator[int]:
    """Hold a stored file open for reading. Raises `RolloutUnreadable`, also for an OSError while the file is read; its
    message contains nothing from the file. `whole`: a file that is too large is refused, since a sparse file costs no
    disk space but memory when it is read.
    """
    try:
        fd = open_for_reading(path)
    except OSError as error:
        raise RolloutUnreadable(f"{path}: {describe(error)}") from None
    except ValueError:
        raise RolloutUnreadable("the path cannot be one of a file") from None
    try:
        if whole and (size := os.fstat(fd).st_size) > MAX_ROLLOUT_BYTES:
            raise RolloutUnreadable(f"{path} is too large to be read ({size} bytes)")
        yield fd
    except OSError as error:
        raise RolloutUnreadable(f"{path}: {describe(error)}") from None
    finally:
        os.close(fd)


def _regular(fd: int, path: Path, *, private: bool = False) -> int:
    """Return the descriptor if it is one of a regular file; else close it and raise."""
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise RolloutUnreadable(f"{path} is not a regular file")
        if private:
            os.fchmod(fd, 0o600)
    except BaseException:
        os.close(fd)
        raise
    return fd


def make_private_folders(folder: Path) -> None:
    """Create `folder` and its missing parents; the new ones are private to their owner."""
    missing = []
    while not os.path.isdir(folder):
        missing.append(folder)
        folder = folder.parent
    for one in reversed(missing):
        one.mkdir(mode=0o700, exist_ok=True)
        one.chmod(0o700)


def append_lines(fd: int, lines: bytes, disk: DiskCalls = REAL_DISK, known_end: int = -1) -> int:
    """Append whole lines; return the new size of the file. If the file ends with a torn line, the new ones begin on a
    line of their own. Raises OSError, and leaves nothing of lines that do not fit. `known_end`: if the file has this
    size, it ends with a whole line.
    """
    size = os.fstat(fd).st_size
    end, torn = (size, False) if size == known_end else without_nuls(fd, size, disk)
    data = b"\n" + lines if torn else lines
    if disk.write(fd, memoryview(data)) < len(data):
        disk.ftruncate(fd, end)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return end + len(data)


def without_nuls(fd: int, size: int, disk: DiskCalls) -> tuple[int, bool]:
    """Remove the NUL bytes that a power failure may have appended to a file of that size: a line after them could not
    be read. Return the new size, and whether the last line is torn.
    """
    end = end_of_text(fd, size)
    if end < size:
        disk.ftruncate(fd, end)
    return end, end > 0 and os.pread(fd, 1, end - 1) != b"\n"


def replace_lines(path: Path, lines: Iterable[bytes]) -> None:
    """Replace a file atomically by one with these lines. Raises OSError."""
    beside = path.with_name(f".{path.name}.new")
    beside.unlink(missing_ok=True)
    new = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(new, "wb") as file:
        os.fchmod(file.fileno(), 0o600)
        file.writelines(line + b"\n" for line in lines)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)


def end_of_text(fd: int, size: int) -> int:
    """Return the offset of the end of the text, before NUL bytes that a power failure may have appended."""
    while size > 0:
        start = max(0, size - 65536)
        tail = os.pread(fd, size - start, start).rstrip(b"\0")
        if tail:
            return start + len(tail)
        size = start
    return 0


FILE_NAME = ".locks"
HISTORY, NOTES = 0, (1 << 62) + 1
"""Lock offsets of the message history, and of names and metadata. They are below and above all offsets of rollouts."""
LOCK_SECONDS = 2.0
"""Maximum wait for another server's append, in seconds. After it, the data is not stored."""
RETRY_SECONDS = 0.005


def home_of(rollout: Path) -> Path | None:
    """Return the home of a rollout; None if it is stored elsewhere."""
    for folder in rollout.parents:
        if folder.name in (SESSIONS, ARCHIVED):
            return folder.parent
    return None


def lock_rollout(fd: int, path: Path) -> int | None:
    """Lock the rollout for its only writer. Return a descriptor that holds the lock; None if `fd` itself holds it.
    Raises `RolloutBusy` if another writer holds it.
    """
    home = home_of(path)
    try:
        if home is None or SET_LOCK is None:  # there is no home or no such lock, so lock the rollout itself
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return None
        status = os.fstat(fd)
        digest = blake2b(f"{status.st_dev} {status.st_ino}".encode(), digest_size=8)
        return _try(home, 1 + (int.from_bytes(digest.digest(), "big") >> 2))
    except BlockingIOError:
        name = parse_rollout_name(path.name)
        who = f"conversation {name.conversation_id}" if name else f"rollout {path}"
        raise RolloutBusy(f"{who} already has an active writer") from None
    except OSError as error:
        # Some network file systems have no locks; storing the conversation is more important than exclusion.
        log.warning("rollout: cannot lock %s: %s", path, error)
        return None


def unlock_rollout(fd: int, lock: int | None) -> None:
    """Release the lock of `lock_rollout`, even if a duplicate of `fd` is still open."""
    if lock is not None:
        os.close(lock)
        return
    with suppress(OSError):
        fcntl.flock(fd, fcntl.LOCK_UN)


@contextmanager
def home_lock(home: Path, place: int, seconds: float = LOCK_SECONDS) -> Iterator[None]:
    """Hold the lock at `place`, which is `HISTORY` or `NOTES`. Raises `OSError` if another server still holds it after
    this many seconds.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            fd = _try(home, place)
            break
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise
        time.sleep(RETRY_SECONDS)
    try:
        yield
    finally:
        os.close(fd)


@contextmanager
def open_locked(path: Path, place: int) -> Iterator[int]:
    """Open a file of the home to append to it, under its lock: no other server appends to it or replaces it in the
    meantime. Raises OSError.
    """
    make_private_folders(path.parent)
    with home_lock(path.parent, place):
        fd = open_for_append(REAL_DISK, path, create=True)
        try:
            yield fd
        finally:
            os.close(fd)


def _try(home: Path, offset: int) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    fd = os.open(home / FILE_NAME, flags, 0o600)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, f"{FILE_NAME} is not a regular file")
        if not take(fd, offset):
            raise BlockingIOError(errno.EAGAIN, "another server holds the lock")
    except BaseException:
        os.close(fd)
        raise
    return fd
