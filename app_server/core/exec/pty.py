"""A command on a terminal of its own that outlives the call that opened it: written to, read from, ended.

What it says is taken in as it comes, whether or not anybody reads, and kept to a cap; so it never blocks
on us.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import selectors
import socket
import struct
import termios
from contextlib import ExitStack
from dataclasses import field

import anyio

from app_server.core.exec import request
from app_server.core.exec.command import SIGNAL_EXIT_BASE, CommandSpec
from app_server.core.exec.launcher_process import LauncherProcess
from app_server.core.exec.output import HeadTail
from app_server.core.exec.report import (
    KILLED,
    Report,
    ReportReader,
    execution_error,
    unavailable_error,
)
from app_server.core.exec.run import launch_errors
from protocol.records import dataclass

log = logging.getLogger(__name__)

READ_SIZE = 1 << 16
SESSION_CAP = 128 * 1024
"""So many bytes of unread output are kept, head and tail."""

KILL_SECONDS = 3.0
"""So long `close` waits for the end of the tree."""

LAST_READS = 64
"""So often the terminal is read after the end: what the command left behind could write for ever."""


@dataclass(slots=True)
class PtySession:
    """One running command on a terminal. `serve` must run in a task for as long as the session is wanted."""

    master: int
    channel: socket.socket
    selector: selectors.DefaultSelector
    """Waits for both."""
    report: Report | None = None
    _unread: HeadTail = field(default_factory=lambda: HeadTail(SESSION_CAP))
    _closed: bool = False
    _news: anyio.Event = field(default_factory=anyio.Event)

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        if self.report is None:
            return None
        return self.report.code if self.report.code >= 0 else SIGNAL_EXIT_BASE - self.report.code

    @property
    def failure(self) -> str | None:
        """Why it never ran, where it did not."""
        if self.report is None or self.report.kind == "exit":
            return None
        if self.report.kind == "failed":
            return execution_error(self.report.code)
        return unavailable_error(self.report)

    async def serve(self) -> None:
        """Takes in output until the command has ended. Never raises: a terminal that cannot be watched is ended."""
        try:
            await self._until_reported(ReportReader(self.channel))
        except OSError as error:
            log.warning("a terminal is ended, as it cannot be watched: %s", error.strerror)
            self.kill()
            self.report = KILLED
        for _ in range(LAST_READS):
            if not self._take():
                break
        self._tell()

    async def _until_reported(self, reader: ReportReader) -> None:
        with self.selector as selector:
            while self.report is None:
                await anyio.wait_readable(selector.fileno())
                for key, _ in selector.select(0):
                    if key.fd != self.master:
                        self.report = reader.read()
                    elif not self._take():
                        selector.unregister(self.master)

    async def write(self, data: bytes) -> None:
        """Types `data`. What a dead command would have read is lost."""
        rest = memoryview(data)
        while rest and not self._closed and self.report is None:
            try:
                rest = rest[os.write(self.master, rest) :]
            except BlockingIOError:
                with anyio.move_on_after(0.1):  # its end must be noticed too
                    await anyio.wait_writable(self.master)
            except OSError:
                return

    async def read(self, seconds: float) -> bytes:
        """What it said since the last read, waiting `seconds` for more; at once when it has ended."""
        with anyio.move_on_after(seconds):
            await self.ended()
        output, self._unread = self._unread, HeadTail(SESSION_CAP)
        return output.value()

    async def next(self, seconds: float) -> bytes:
        """What it said since the last read, as soon as there is something; empty when time is up or it has ended."""
        with anyio.move_on_after(seconds):
            while not self._unread.total and self.report is None:
                await self._news.wait()
        output, self._unread = self._unread, HeadTail(SESSION_CAP)
        return output.value()

    async def ended(self) -> None:
        """Waits for the end of the command."""
        while self.report is None:
            await self._news.wait()

    def kill(self) -> None:
        """Ends the whole tree; `serve` notices."""
        try:
            self.channel.shutdown(socket.SHUT_WR)
        except OSError as error:
            if error.errno not in (errno.ENOTCONN, errno.EBADF):
                raise

    async def close(self) -> None:
        """Ends the command if it runs, waits for that within a bound, and lets go of the terminal."""
        if self._closed:
            return
        self._closed = True
        self.kill()
        with anyio.move_on_after(KILL_SECONDS, shield=True):
            await self.ended()
        os.close(self.master)
        self.channel.close()

    def _take(self) -> bool:
        """Reads once; False where nothing more is there now or ever."""
        try:
            chunk = os.read(self.master, READ_SIZE)
        except BlockingIOError:
            return self.report is None
        except OSError:  # EIO: no process has the terminal open any more
            return False
        self._unread.add(chunk)
        self._tell()
        return bool(chunk)

    def _tell(self) -> None:
        self._news.set()
        self._news = anyio.Event()


async def open_session(
    launcher: LauncherProcess,
    spec: CommandSpec,
    confinement: request.Confinement | None,
    columns: int,
    rows: int,
) -> PtySession:
    """Starts `spec` on a new terminal. The caller runs `serve` and, at last, `close`."""
    message = request.build(spec, confinement, terminal=True)
    with launch_errors(), ExitStack() as kept, ExitStack() as handed_on:
        master, slave = os.openpty()
        kept.callback(os.close, master)
        handed_on.callback(os.close, slave)
        ours, theirs = socket.socketpair()
        kept.enter_context(ours)
        handed_on.enter_context(theirs)
        selector = kept.enter_context(selectors.DefaultSelector())
        ours.setblocking(False)
        os.set_blocking(master, False)
        selector.register(master, selectors.EVENT_READ)
        selector.register(ours, selectors.EVENT_READ)
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        await launcher.submit(message, [theirs.fileno(), slave])
        kept.pop_all()
        return PtySession(master, ours, selector)
