"""Hands copies of what passes to the observer, without ever waiting for it.

A frame is written at once if the pipe takes it. What it does not take waits in a backlog (in memory with a bound for a
page, in a file without one for a recording), which a thread empties; what the backlog does not take is counted, and the
count is recorded as a gap.
"""

from __future__ import annotations

import json
import os
import select
import tempfile
import threading
from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from app_server.inspector.session_records import Source, encode_frame

PIECE = 1 << 16
"""Bytes that are handed out at once."""


class BoundedBacklog:
    """Frames that wait, in memory; what does not fit is dropped."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._frames: deque[bytes] = deque()
        self._size = 0

    def __bool__(self) -> bool:
        return bool(self._frames)

    def add(self, frame: bytes, *, begun: bool) -> bool:
        """Keep a frame, or the rest of one that is `begun`; return False if it was dropped, which no begun frame is."""
        if not begun and self._size + len(frame) > self._limit:
            return False
        self._frames.append(frame)
        self._size += len(frame)
        return True

    def first(self) -> bytes:
        """Return the bytes to be written next."""
        return self._frames[0]

    def taken(self, size: int) -> None:
        """Forget so many bytes, which were written."""
        frame = self._frames.popleft()
        if size < len(frame):
            self._frames.appendleft(frame[size:])
        self._size -= size


class FileBacklog:
    """Frames that wait, all of them, in a file without a name."""

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


Backlog: TypeAlias = BoundedBacklog | FileBacklog


class Tap:
    def __init__(self, fd: int, backlog: Backlog, clock: Callable[[], int]) -> None:
        """Write to `fd`, a pipe to the observer, closed at the end; `clock` gives nanoseconds since the start."""
        os.set_blocking(fd, False)
        self._fd = fd
        self._backlog = backlog
        self._clock = clock
        self._lock = threading.Lock()
        self._waiting = threading.Event()
        self._dropped = [0, 0]  # frames and bytes since the last gap that was recorded
        self._gone = self._closing = False
        self._flusher = threading.Thread(target=self._flush, name="tap", daemon=True)
        self._flusher.start()

    @property
    def gone(self) -> bool:
        """Check whether the observer has left."""
        return self._gone

    def put(self, source: Source, data: bytes) -> None:
        with self._lock:
            if not self._gone and not self._write(self._gap() + encode_frame(source, self._clock(), data)):
                self._dropped[0] += 1
                self._dropped[1] += len(data)

    def event(self, event: str, **details: str | int) -> None:
        """Record something about the connection."""
        self.put(Source.INSPECTOR, json.dumps({"event": event, **details}).encode())

    def close(self, within: float | None) -> None:
        """Hand over what waits, for at most so many seconds, or for as long as it takes."""
        with self._lock:
            if gap := self._gap():
                self._backlog.add(gap, begun=True)
            self._closing = True
            self._waiting.set()
        self._flusher.join(within)
        with self._lock:
            self._gone = True
            os.close(self._fd)

    def _gap(self) -> bytes:
        """Return what was dropped since the last frame, as a frame; it goes with the next one."""
        frames, size = self._dropped
        if not frames:
            return b""
        gap = json.dumps({"event": "gap", "frames": frames, "bytes": size}).encode()
        return encode_frame(Source.INSPECTOR, self._clock(), gap)

    def _write(self, frame: bytes) -> bool:
        """Write or keep a frame; return False if it was dropped, and the gap before it is still to be recorded."""
        sent = 0
        if not self._backlog:
            sent = self._try_write(frame)
            if sent == len(frame) or self._gone:
                self._dropped = [0, 0]
                return True
        kept = self._backlog.add(frame[sent:], begun=sent > 0)
        if sent and not kept:
            self._gone = True  # half a frame cannot be followed by anything
        if kept:
            self._dropped = [0, 0]
        self._waiting.set()
        return kept

    def _try_write(self, data: bytes) -> int:
        try:
            return os.write(self._fd, data)
        except BlockingIOError:
            return 0
        except OSError:
            self._gone = True
            return 0

    def _flush(self) -> None:
        """Run as a thread until the end."""
        while True:
            self._waiting.wait()
            poll = select.poll()
            poll.register(self._fd, select.POLLOUT)
            while self._flush_some():
                poll.poll()
            with self._lock:
                if self._gone or (self._closing and not self._backlog):
                    return
                if not self._backlog:
                    self._waiting.clear()

    def _flush_some(self) -> bool:
        """Write what the pipe takes; return whether something still waits."""
        with self._lock:
            while self._backlog and not self._gone:
                first = self._backlog.first()
                sent = self._try_write(first)
                if sent:
                    self._backlog.taken(sent)
                if sent < len(first):
                    break
            return bool(self._backlog) and not self._gone
