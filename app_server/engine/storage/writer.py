"""Appends a conversation to its rollout, line by line, and reports every loss. `NullRolloutWriter` stores nothing.

Steps of an append: encode, add to the backlog, write the backlog in one call, truncate a partial write. After an error,
lines stay in the bounded backlog until the next append or flush. Only one process writes a rollout: the kernel releases
the lock when its holder exits.
"""

from __future__ import annotations

import errno
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from msgspec import Struct

from app_server.engine.storage import line_reader
from app_server.engine.storage.disk import (
    REAL_DISK,
    DiskCalls,
    lock_rollout,
    open_for_append,
    unlock_rollout,
    without_nuls,
)
from app_server.engine.storage.journal_file import RolloutJournal
from app_server.engine.storage.rollout_names import journal_path
from app_server.engine.support import user_messages
from app_server.engine.support.engine_errors import NotStored, RolloutBusy, RolloutUnreadable, describe
from app_server_protocol.responses import OtherItem, ResponseItem
from app_server_protocol.rollout import RolloutItem, StoredEvent, numbered, stored_line, utc_timestamp

MAX_BACKLOG_BYTES = 64 * 1024 * 1024
"""Maximum size of the backlog; beyond it, new lines are lost, and `problem` reports it."""
BATCH_BYTES = 1024 * 1024
"""Approximate size of one write from a long backlog, so that a retry on a full disk is cheap."""


class _Backlog:
    """Lines that are not written yet, up to a maximum size."""

    def __init__(self) -> None:
        self.lost = 0
        self._lines: deque[bytes] = deque()
        self._size = 0

    def __bool__(self) -> bool:
        return bool(self._lines)

    def add(self, line: bytes) -> None:
        if self._size + len(line) > MAX_BACKLOG_BYTES:
            self.lost += 1
        else:
            self._lines.append(line)
            self._size += len(line)

    def batch(self) -> Iterator[bytes]:
        """Yield the first lines, for one write."""
        size = 0
        for line in self._lines:
            yield line
            size += len(line)
            if size >= BATCH_BYTES:
                return

    def clear(self) -> None:
        self._lines.clear()
        self._size = 0

    def drop(self, written: int) -> int:
        """Drop the lines that are within the `written` bytes; return the size of the lines that were written whole."""
        whole = 0
        while self._lines and whole + len(self._lines[0]) <= written:
            whole += len(self._lines.popleft())
        self._size -= whole
        return whole


class LineForm(Struct):
    """The form of the lines of one file, and the number of the next line."""

    paginated: str | None = None
    """Id of the thread whose file has the paginated form; None for another form."""
    ordinal: int = 0
    """Number of the next line in the paginated form."""

    def line(self, stored: bytes) -> bytes:
        """Return the next line in the form of the file."""
        if self.paginated is None:
            return stored
        self.ordinal += 1
        return numbered(stored, self.ordinal - 1)


class RolloutWriter:
    """The one writer of one rollout. Appending belongs to one thread; `flush` may run in another."""

    def __init__(self, path: Path, now: Callable[[], datetime], disk: DiskCalls, *, create: bool) -> None:
        self.path = path
        self.problem: str | None = None
        """Why the newest lines are not on the disk yet; None if they are."""
        self.form = LineForm()
        self._now = now
        self._disk = disk
        self._create = create
        self._lock = threading.Lock()
        self._fd: int | None = None
        self._lock_fd: int | None = None
        self._end = -1
        self._backlog = _Backlog()
        self._closed = False
        self._journal = RolloutJournal(journal_path(path), disk)
        self._journal_items: Sequence[ResponseItem] = ()
        self._adopting = False
        self._names_kept = 0

    @classmethod
    def create(
        cls,
        path: Path,
        now: Callable[[], datetime],
        items: Iterable[RolloutItem],
        disk: DiskCalls = REAL_DISK,
        *,
        paginated: str | None = None,
    ) -> RolloutWriter:
        """Start a rollout; disk errors are in `problem`. `paginated`: the thread, if the file has that form."""
        writer = cls(path, now, disk, create=True)
        writer.form = LineForm(paginated)
        writer.append(items)
        return writer

    @classmethod
    def resume(cls, path: Path, now: Callable[[], datetime], disk: DiskCalls = REAL_DISK) -> RolloutWriter:
        """Continue a stored rollout. Raises `RolloutBusy` while another writer has it open."""
        writer = cls(path, now, disk, create=False)
        try:
            writer._open()
        except OSError as error:
            writer._fail(error)
        with suppress(RolloutUnreadable):  # a reader of the whole file gets the error
            writer.form = LineForm(*line_reader.form_of(path))
        return writer

    # --- storing
    def append(self, items: Iterable[RolloutItem]) -> None:
        """Store lines in this order. Never raises, and blocks for one write at most."""
        stamp = utc_timestamp(self._now())
        # An item of an unknown kind could never be sent to a model again, so it is not stored.
        stored = (item for item in items if not isinstance(item, OtherItem))
        self.append_lines([stored_line(stamp, item) for item in stored])

    def append_lines(self, lines: Sequence[bytes]) -> None:
        """Store lines that are already in the form of a rollout."""
        with self._lock:
            for line in lines:
                if self._closed:
                    self._backlog.lost += 1
                    continue
                self._backlog.add(self.form.line(line) + b"\n")
            self._drain()

    def write_journal(
        self, items: Sequence[ResponseItem], pieces: Sequence[bytes] = (), *, growing: bool = False
    ) -> None:
        """Make the journal contain exactly these items until they are appended to the rollout, so that they survive a
        crash. `pieces`: new text of unfinished items. `growing`: text that the journal contains already is still
        needed.
        """
        with self._lock:
            self._journal_items = tuple(items)
            self._journal.take_text(pieces, growing=growing)
            self._drain()

    def adopt(self, items: Sequence[RolloutItem]) -> None:
        """Append the items of an earlier writer's journal, or a line that reverts them; only then remove it."""
        self._adopting = True
        self.append(items)

    def flush(self) -> None:
        """Flush everything to the disk. Slow: call it in a thread."""
        fds: list[int] = []
        try:
            with self._lock:
                self._drain()
                fds += self._duplicates()
            for fd in fds:
                self._disk.fsync(fd)
        except OSError as error:
            self._fail(error)
        finally:
            for fd in fds:
                os.close(fd)

    def close(self) -> None:
        """Write the backlog and release the file for other writers."""
        with self._lock:
            if self._closed:
                return
            self._drain()
            self._closed = True
            self._journal.close()
            if self._fd is not None:
                unlock_rollout(self._fd, self._lock_fd)
                os.close(self._fd)
                self._fd = self._lock_fd = None

    # --- with the lock held
    def _duplicates(self) -> Iterator[int]:
        """Yield duplicates of the descriptors to flush, so that appending and closing are possible during the flush."""
        if self._fd is None:
            return
        yield os.dup(self._fd)
        journal = self._journal.duplicate()
        yield from journal
        if 1 + len(journal) > self._names_kept:
            # A new file survives a power failure only if its folder is flushed, too.
            yield os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            self._names_kept = 1 + len(journal)

    def _drain(self) -> None:
        if self._closed:
            return
        try:
            if self._fd is None:
                self._open()
            while self._backlog:
                self._write_batch()
            # Only now: the rollout must contain an item before the journal drops it.
            if self._adopting:
                self._journal.discard()
                self._adopting = False
            self._journal.hold(self._journal_items, lambda: _size_of(self._fd), self._now)
        except OSError as error:
            self._fail(error)
        except RolloutBusy as error:
            self.problem = str(error)
        else:
            self.problem = f"{self._backlog.lost} lines were lost" if self._backlog.lost else None

    def _open(self) -> None:
        if self._create and not self._backlog:
            return
        fd = open_for_append(self._disk, self.path, create=self._create)
        try:
            self._lock_fd = lock_rollout(fd, self.path)
        except RolloutBusy:
            os.close(fd)
            raise
        self._fd = fd

    def _write_batch(self) -> None:
        assert self._fd is not None
        start = self._whole_end(self._fd)
        data = memoryview(b"".join(self._backlog.batch()))
        done = 0
        try:
            while done < len(data):
                count = self._disk.write(self._fd, data[done:])
                if count <= 0:
                    raise OSError(errno.EIO, os.strerror(errno.EIO))
                done += count
        finally:
            self._forget(start, done)

    def _whole_end(self, fd: int) -> int:
        """Return the file's size after repairs: no NUL bytes at the end, and a line end."""
        status = os.fstat(fd)
        size = status.st_size
        if not status.st_nlink:
            raise OSError(errno.ENOENT, "its file was deleted")
        if size == self._end or size == 0:
            return size
        end, torn = without_nuls(fd, size, self._disk)
        if torn:
            end += self._disk.write(fd, memoryview(b"\n"))
            first = next(self._backlog.batch(), b"")
            if first and os.pread(fd, len(first), end - len(first)) == first:
                self._backlog.drop(len(first))  # all of it but its line end was written before
        return end

    def _forget(self, start: int, done: int) -> None:
        """Drop the lines that were written, which are the `done` bytes after `start`; truncate a partial one."""
        assert self._fd is not None
        whole = self._backlog.drop(done)
        self._end = start + whole
        if whole < done:
            # If this fails too, the size does not match, and the next append ends the incomplete line.
            self._disk.ftruncate(self._fd, self._end)

    def _fail(self, error: OSError) -> None:
        lost = f"; {self._backlog.lost} lines were lost" if self._backlog.lost else ""
        self.problem = f"{describe(error)}{lost}"


def _size_of(fd: int | None) -> int:
    return os.fstat(fd).st_size if fd is not None else 0


class NullRolloutWriter:
    """Stores nothing, and never has a problem."""

    path = None
    problem = None
    form = LineForm()

    def append(self, items: Iterable[RolloutItem]) -> None:
        pass

    def write_journal(
        self, items: Sequence[ResponseItem], pieces: Sequence[bytes] = (), *, growing: bool = False
    ) -> None:
        pass

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


def append_revert(writer: RolloutWriter, line: StoredEvent) -> NotStored | None:
    """Append a line that reverts earlier ones, among them the items that only an earlier writer's journal has. If the
    line cannot be written, drop it, keep that journal, and return the reason.
    """
    ordinal = writer.form.ordinal
    writer.adopt([line])
    with writer._lock:
        if not writer._backlog:
            return None
        writer._backlog.clear()
        writer._adopting, writer.form.ordinal = False, ordinal
    return _not_reverted(writer)


def require_written(writer: RolloutWriter | NullRolloutWriter) -> None:
    """Raise NotStored if lines of a conversation that is about to go back wait to be written."""
    if isinstance(writer, RolloutWriter) and writer._backlog:
        raise _not_reverted(writer)


def _not_reverted(writer: RolloutWriter) -> NotStored:
    return NotStored(str(user_messages.not_reverted(writer.problem or "")))
