"""Runs a server and passes its stdio through, byte for byte: partial lines, huge lines and data that is no JSON.

Each direction is a thread that reads, hands a copy to the tap, and writes. The copy is handed over before the bytes are
written, so that the observer sees a request before its answer. The ends of the streams, signals and the exit status are
passed on too.

The tap hands copies to the observer without ever waiting for it. A frame is written at once if the pipe accepts it. The
rest waits in a backlog (in memory with a bound for a page, in a file without one for a recording), which a thread
drains. Frames that the backlog does not accept are counted, and the count is recorded as a gap.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import IO, TypeAlias

from app_server.cli.inspect.session_records import Source, encode_frame
from app_server.server.bootstrap.claim import write_all

READ_SIZE = PIECE = 1 << 16
"""Size of one read, which is what a pipe holds, and of one write of the tap, in bytes."""

FORWARDED = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGCONT", "SIGWINCH")
FROM_TERMINAL = ("SIGINT", "SIGQUIT", "SIGWINCH")
"""Names of signals that a terminal also sends to the server, because the server is in the same process group."""

GATHER_SECONDS = 0.001
"""Gathering interval of fast output, in seconds: a read, a copy and a write for each message would take as much of the
processors as some servers need for the message.
"""

GRACE = 2.0
"""Timeout for the end of the server's output after its exit, in seconds: a child of it may hold the pipe open."""


def pass_through(command: Sequence[str], environment: Mapping[str, str], tap: Tap) -> int:
    """Run the server. Return its code in the form of `subprocess`, negative if a signal ended it. Raises OSError if it
    cannot be started.
    """
    pending: list[int] = []
    started: list[subprocess.Popen[bytes]] = []

    def forward(number: int, frame: object) -> None:
        if signal.Signals(number).name in FROM_TERMINAL and _in_foreground():
            return
        if started:
            started[0].send_signal(number)
        else:
            pending.append(number)

    ignored = [name for name in FORWARDED if signal.getsignal(getattr(signal, name)) is signal.SIG_IGN]
    for name in FORWARDED:
        if name not in ignored:  # the server inherits which signals are ignored
            signal.signal(getattr(signal, name), forward)
    pipe = subprocess.PIPE
    server = subprocess.Popen(
        command,
        bufsize=0,
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        close_fds=False,  # the server inherits what its client passes on; none of ours is inheritable
        env=environment,
    )
    started.append(server)
    for name in ignored:
        signal.signal(getattr(signal, name), forward)
    for number in pending:
        server.send_signal(number)
    assert server.stdin is not None
    assert server.stdout is not None
    assert server.stderr is not None
    tap.event("started", process=server.pid)
    threading.Thread(target=_pass_input, args=(server.stdin, tap), daemon=True).start()
    outputs = [
        threading.Thread(target=_pass_output, args=(source, pipe, to, tap), daemon=True)
        for source, pipe, to in ((Source.SERVER, server.stdout, 1), (Source.STDERR, server.stderr, 2))
    ]
    for thread in outputs:
        thread.start()
    status = server.wait()
    for thread in outputs:
        thread.join(GRACE)
    tap.event("exited", status=status)
    return status


def end_like(status: int) -> int:
    """Return the exit status for a return code. If a signal ended the server, end this process by the same signal."""
    if status >= 0:
        return status
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the server has left its own, if core files are enabled
    if -status != signal.SIGKILL:
        signal.signal(-status, signal.SIG_DFL)
    os.kill(os.getpid(), -status)
    return 128 - status


def _pass_input(to: IO[bytes], tap: Tap) -> None:
    while data := _read(0):
        tap.put(Source.CLIENT, data)
        if not write_all(to.fileno(), data):
            _replace(0)  # the server has stopped reading, so the client's next write must fail
            break
    tap.put(Source.CLIENT, b"")
    to.close()


def _pass_output(source: Source, pipe: IO[bytes], to: int, tap: Tap) -> None:
    passed = 0.0
    while data := _read(pipe.fileno()):
        tap.put(source, data)
        if not write_all(to, data):
            break
        before, passed = passed, time.monotonic()
        if passed - before < GATHER_SECONDS:
            time.sleep(GATHER_SECONDS)
    tap.put(source, b"")
    pipe.close()
    if source is Source.SERVER:
        _replace(to)


def _read(fd: int) -> bytes:
    while True:
        try:
            return os.read(fd, READ_SIZE)
        except BlockingIOError:
            select.select([fd], [], [])
        except OSError:
            return b""


def _replace(fd: int) -> None:
    """Close this process's end of the client's pipe, and keep its descriptor number in use."""
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, fd)
    os.close(null)


def _in_foreground() -> bool:
    try:
        terminal = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


# --- the tap


class BoundedBacklog:
    """Waiting frames, in memory. Frames that do not fit are dropped."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._frames: deque[bytes] = deque()
        self._size = 0

    def __bool__(self) -> bool:
        return bool(self._frames)

    def add(self, frame: bytes, *, begun: bool) -> bool:
        """Add a frame, or the rest of one that is `begun`. Return False if it was dropped; a begun frame is never
        dropped.
        """
        if not begun and self._size + len(frame) > self._limit:
            return False
        self._frames.append(frame)
        self._size += len(frame)
        return True

    def first(self) -> bytes:
        """Return the next bytes to write."""
        return self._frames[0]

    def taken(self, size: int) -> None:
        """Remove this number of bytes, which were written."""
        frame = self._frames.popleft()
        if size < len(frame):
            self._frames.appendleft(frame[size:])
        self._size -= size


class FileBacklog:
    """Waiting frames, all of them, in a file without a name."""

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
        """Write to `fd`, a pipe to the observer, which is closed at the end. `clock` returns nanoseconds since the
        start.
        """
        os.set_blocking(fd, False)
        self._fd = fd
        self._backlog = backlog
        self._clock = clock
        self._lock = threading.Lock()
        self._waiting = threading.Event()
        self._dropped = [0, 0]  # numbers of frames and bytes since the last gap that was recorded
        self.gone = self._closing = False
        """Whether the observer has left."""
        self._flusher = threading.Thread(target=self._flush, name="tap", daemon=True)
        self._flusher.start()

    def put(self, source: Source, data: bytes) -> None:
        with self._lock:
            if not self.gone and not self._write(self._gap() + encode_frame(source, self._clock(), data)):
                self._dropped[0] += 1
                self._dropped[1] += len(data)

    def event(self, event: str, **details: str | int) -> None:
        """Record an event about the connection."""
        self.put(Source.INSPECTOR, json.dumps({"event": event, **details}).encode())

    def close(self, within: float | None) -> None:
        """Write the waiting frames, within this number of seconds, or without a timeout if it is None."""
        with self._lock:
            if gap := self._gap():
                self._backlog.add(gap, begun=True)
            self._closing = True
            self._waiting.set()
        self._flusher.join(within)
        with self._lock:
            self.gone = True
            os.close(self._fd)

    def _gap(self) -> bytes:
        """Return a frame about the frames that were dropped since the last one. It is written before the next frame."""
        frames, size = self._dropped
        if not frames:
            return b""
        gap = json.dumps({"event": "gap", "frames": frames, "bytes": size}).encode()
        return encode_frame(Source.INSPECTOR, self._clock(), gap)

    def _write(self, frame: bytes) -> bool:
        """Write or keep a frame. Return False if it was dropped; then the gap before it still has to be recorded."""
        sent = 0
        if not self._backlog:
            sent = self._try_write(frame)
            if sent == len(frame) or self.gone:
                self._dropped = [0, 0]
                return True
        kept = self._backlog.add(frame[sent:], begun=sent > 0)
        if sent and not kept:
            self.gone = True  # no frame can follow half a frame
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
            self.gone = True
            return 0

    def _flush(self) -> None:
        """Drain the backlog until the end. It runs as a thread."""
        while True:
            self._waiting.wait()
            poll = select.poll()
            poll.register(self._fd, select.POLLOUT)
            while self._flush_some():
                poll.poll()
            with self._lock:
                if self.gone or (self._closing and not self._backlog):
                    return
                if not self._backlog:
                    self._waiting.clear()

    def _flush_some(self) -> bool:
        """Write as much as the pipe accepts. Return whether frames still wait."""
        with self._lock:
            while self._backlog and not self.gone:
                first = self._backlog.first()
                sent = self._try_write(first)
                if sent:
                    self._backlog.taken(sent)
                if sent < len(first):
                    break
            return bool(self._backlog) and not self.gone
