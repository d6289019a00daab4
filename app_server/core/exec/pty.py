"""A command on its own terminal, which outlives the call that opened it.

Its output is read as it arrives, even without a reader, and only head and tail are kept. So the command never blocks on
the server.
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
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import field

import anyio

from app_server.core.exec import launcher_process
from app_server.core.exec.command import SIGNAL_EXIT_BASE, CommandSpec
from app_server.core.exec.launcher_process import LauncherProcess
from app_server.core.exec.report import (
    KILLED,
    Report,
    ReportReader,
    execution_error,
    tell_senders,
    unavailable_error,
)
from app_server.core.exec.run import launch_errors
from app_server.core.exec.streams import HeadTail
from protocol.records import dataclass

log = logging.getLogger(__name__)

READ_SIZE = 1 << 16
SESSION_CAP = 128 * 1024
"""Bytes of unread output that are kept, head and tail."""

KILL_SECONDS = 3.0
"""How long `close` waits for the end of the tree."""

LAST_READS = 64
"""Reads after the command's end. The limit is needed because a process that it left behind could write for ever."""


@dataclass(slots=True)
class PtySession:
    """One running command on a terminal. `serve` must run in a task for as long as the session is wanted."""

    master: int
    channel: socket.socket
    selector: selectors.DefaultSelector
    """For the terminal and the channel."""
    reader: ReportReader
    report: Report | None = None
    on_output: Callable[[bytes], None] | None = None
    """Is called with output as it arrives, whether or not somebody reads it. It must not block or raise."""
    on_end: Callable[[], None] | None = None
    """Is called when the command has ended, after all its output."""
    _unread: HeadTail = field(default_factory=lambda: HeadTail(SESSION_CAP))
    _closed: bool = False
    _changed: anyio.Event = field(default_factory=anyio.Event)

    @property
    def exit_code(self) -> int | None:
        """None while the command runs."""
        if self.report is None:
            return None
        return self.report.code if self.report.code >= 0 else SIGNAL_EXIT_BASE - self.report.code

    @property
    def failure(self) -> str | None:
        """Why the command did not start; None if it did."""
        if self.report is None or self.report.kind == "exit":
            return None
        if self.report.kind == "failed":
            return execution_error(self.report.code)
        return unavailable_error(self.report)

    async def serve(self) -> None:
        """Read output until the command ends. Never raises: a terminal that cannot be polled is killed."""
        try:
            await self._until_reported(self.reader)
        except OSError as error:
            log.warning("killed a terminal session that cannot be polled: %s", error.strerror)
            self.kill()
            self.report = KILLED
        for _ in range(LAST_READS):
            if not self._read_terminal():
                break
        if self.on_end is not None:
            self.on_end()
        self._notify()

    async def _until_reported(self, reader: ReportReader) -> None:
        with self.selector as selector:
            while self.report is None:
                await anyio.wait_readable(selector.fileno())
                for key, _ in selector.select(0):
                    if key.fd != self.master:
                        self.report = reader.read_report()
                    elif not self._read_terminal():
                        selector.unregister(self.master)

    async def write(self, data: bytes) -> None:
        """Write `data` to the terminal. Input is lost if the command has ended."""
        rest = memoryview(data)
        while rest and not self._closed and self.report is None:
            try:
                rest = rest[os.write(self.master, rest) :]
            except BlockingIOError:
                with anyio.move_on_after(0.1):  # its end must be noticed too
                    await anyio.wait_writable(self.master)
            except OSError:
                return

    async def read_for(self, seconds: float) -> bytes:
        """The output since the last read, after `seconds`, or as soon as the command has ended."""
        with anyio.move_on_after(seconds):
            await self.wait_ended()
        output, self._unread = self._unread, HeadTail(SESSION_CAP)
        return output.value()

    async def read_some(self, seconds: float) -> bytes:
        """The output since the last read, as soon as there is any; empty if the time is up or the command has ended."""
        with anyio.move_on_after(seconds):
            while not self._unread.total and self.report is None:
                await self._changed.wait()
        output, self._unread = self._unread, HeadTail(SESSION_CAP)
        return output.value()

    async def wait_ended(self) -> None:
        """Wait for the end of the command."""
        while self.report is None:
            await self._changed.wait()

    def kill(self) -> None:
        """Kill the whole process tree; `serve` gets the report."""
        try:
            self.channel.shutdown(socket.SHUT_WR)
        except OSError as error:
            if error.errno not in (errno.ENOTCONN, errno.EBADF):
                raise

    async def close(self) -> None:
        """Kill the command if it runs, wait for its end within a bound, and close the terminal."""
        if self._closed:
            return
        self._closed = True
        self.kill()
        with anyio.move_on_after(KILL_SECONDS, shield=True):
            await self.wait_ended()
        os.close(self.master)
        self.channel.close()

    def _read_terminal(self) -> bool:
        """Read once. False if there is no output now and there will be none."""
        try:
            chunk = os.read(self.master, READ_SIZE)
        except BlockingIOError:
            return self.report is None
        except OSError:  # EIO: no process has the terminal open any more
            return False
        self._unread.add(chunk)
        if self.on_output is not None and chunk:
            self.on_output(chunk)
        self._notify()
        return bool(chunk)

    def _notify(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()


async def open_session(
    launcher: LauncherProcess,
    spec: CommandSpec,
    confinement: launcher_process.Confinement | None,
    columns: int,
    rows: int,
) -> PtySession:
    """Start `spec` on a new terminal. The caller runs `serve` and finally `close`."""
    message = launcher_process.build(spec, confinement, terminal=True)
    with launch_errors(), ExitStack() as kept, ExitStack() as handed_on:
        master, slave = os.openpty()
        kept.callback(os.close, master)
        handed_on.callback(os.close, slave)
        ours, theirs = socket.socketpair()
        kept.enter_context(ours)
        handed_on.enter_context(theirs)
        selector = kept.enter_context(selectors.DefaultSelector())
        ours.setblocking(False)
        tell_senders(ours)
        os.set_blocking(master, False)
        selector.register(master, selectors.EVENT_READ)
        selector.register(ours, selectors.EVENT_READ)
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        await launcher.submit(message, [theirs.fileno(), slave])
        kept.pop_all()
        return PtySession(master, ours, selector, ReportReader(ours))
