"""A file of the home with JSON lines about conversations, of which the last one about each counts.

Lines are appended under a lock of the home. Only `forget` replaces the file, by one without the lines about a
conversation. What was read is kept; a look at the file shows whether it grew, was replaced or is gone.
"""

from __future__ import annotations

import errno
import json
import os
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from app_server.core.rollout.disk import REAL_DISK, open_for_append, open_for_reading
from app_server.core.rollout.locks import lines_lock
from app_server.core.rollout.objects import parse_object
from app_server.core.rollout.rollout_errors import RolloutUnreadable

if TYPE_CHECKING:
    from protocol.base import Json

MAX_BYTES = 64 * 1024 * 1024
"""So much of a file is read; what lies behind it does not count."""
LOCK_SECONDS = 2.0
_CHUNK = 1 << 20

_Place = tuple[int, int]
"""Device and inode of a file."""


class LatestLines:
    """One such file. All methods block; they may be called in several threads."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._mutex = threading.Lock()
        self._place: _Place | None = None
        self._read_to = 0
        self._stamp = 0
        self._lines: dict[str, dict[str, Json]] = {}

    def read(self) -> Mapping[str, Mapping[str, Json]]:
        """The last lines by conversation. A file that cannot be read has none."""
        with self._mutex:
            try:
                fd = open_for_reading(self.path)
            except (OSError, RolloutUnreadable):
                self._start_anew(None)
                return self._lines
            try:
                self._catch_up(fd)
            finally:
                os.close(fd)
            return self._lines

    def append(self, id: str, fields: Mapping[str, Json]) -> None:
        """Raises `OSError`."""
        line = json.dumps({"id": id, **fields}, separators=(",", ":")).encode() + b"\n"
        with lines_lock(self.path.parent, LOCK_SECONDS):
            fd = open_for_append(REAL_DISK, self.path, create=True)
            try:
                size = os.fstat(fd).st_size
                torn = size > 0 and os.pread(fd, 1, size - 1) != b"\n"
                data = b"\n" + line if torn else line
                if os.write(fd, data) < len(data):
                    os.ftruncate(fd, size)
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fsync(fd)
            finally:
                os.close(fd)

    def forget(self, id: str) -> None:
        """Removes every line about this conversation. Raises `OSError`."""
        if id.lower() not in self.read():
            return
        with lines_lock(self.path.parent, LOCK_SECONDS):
            fd = open_for_reading(self.path)
            try:
                kept = [line for line in _lines(fd) if _id(parse_object(line)) != id.lower()]
            finally:
                os.close(fd)
            beside = self.path.with_name(f".{self.path.name}.new")
            beside.unlink(missing_ok=True)
            new = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(new, "wb") as file:
                os.fchmod(file.fileno(), 0o600)
                file.writelines(line + b"\n" for line in kept)
                file.flush()
                os.fsync(file.fileno())
            os.replace(beside, self.path)

    # --- with the mutex held
    def _catch_up(self, fd: int) -> None:
        status = os.fstat(fd)
        place = (status.st_dev, status.st_ino)
        if place != self._place or status.st_size < self._read_to:
            self._start_anew(place)
        elif status.st_mtime_ns == self._stamp and status.st_size == self._read_to:
            return
        self._stamp = status.st_mtime_ns
        changed: dict[str, dict[str, Json]] = {}
        for line in _lines(fd, self._read_to):
            self._read_to += len(line) + 1
            fields = parse_object(line)
            id = _id(fields)
            if fields is not None and id is not None:
                changed[id] = fields
        if changed:
            self._lines = {**self._lines, **changed}  # who was given the old ones keeps them

    def _start_anew(self, place: _Place | None) -> None:
        self._lines = {}
        self._place, self._read_to, self._stamp = place, 0, 0


def _lines(fd: int, start: int = 0) -> Iterator[bytes]:
    """The complete lines from `start` on; one without an end is still being written, or torn."""
    rest = b""
    while start < MAX_BYTES and (chunk := os.pread(fd, _CHUNK, start)):
        start += len(chunk)
        *lines, rest = (rest + chunk).split(b"\n")
        yield from lines


def _id(fields: Mapping[str, Json] | None) -> str | None:
    id = fields.get("id") if fields is not None else None
    return id.lower() if isinstance(id, str) else None
