"""Frames that the observer has not taken yet: in memory with a bound for a page, in a file without one for a
recording.
"""

from __future__ import annotations

import os
import tempfile
from collections import deque
from typing import Protocol

PIECE = 1 << 16
"""Bytes that are handed out at once."""


class Backlog(Protocol):
    def __bool__(self) -> bool:
        """Whether something waits."""
        ...

    def add(self, frame: bytes, *, begun: bool) -> bool:
        """Keep a frame, or the rest of one that is `begun`. False: it was dropped, which no begun frame is."""
        ...

    def first(self) -> bytes:
        """The bytes to be written next."""
        ...

    def taken(self, size: int) -> None:
        """So many of them were written."""
        ...


class BoundedBacklog:
    """Drops what does not fit."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._frames: deque[bytes] = deque()
        self._size = 0

    def __bool__(self) -> bool:
        return bool(self._frames)

    def add(self, frame: bytes, *, begun: bool) -> bool:
        if not begun and self._size + len(frame) > self._limit:
            return False
        self._frames.append(frame)
        self._size += len(frame)
        return True

    def first(self) -> bytes:
        return self._frames[0]

    def taken(self, size: int) -> None:
        frame = self._frames.popleft()
        if size < len(frame):
            self._frames.appendleft(frame[size:])
        self._size -= size


class FileBacklog:
    """Keeps everything, in a file without a name."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115  open as long as this process
        self._read = self._written = 0

    def __bool__(self) -> bool:
        return self._read < self._written

    def add(self, frame: bytes, *, begun: bool) -> bool:
        view = memoryview(frame)
        start = self._written
        try:
            while view:
                size = os.pwrite(self._file.fileno(), view, self._written)
                self._written += size
                view = view[size:]
        except OSError:  # the disk is full: a frame is kept whole or not at all
            self._written = start
            return False
        return True

    def first(self) -> bytes:
        return os.pread(self._file.fileno(), min(PIECE, self._written - self._read), self._read)

    def taken(self, size: int) -> None:
        self._read += size
        if self._read == self._written:
            self._file.truncate(0)
            self._read = self._written = 0
