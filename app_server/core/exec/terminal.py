"""A command on its own terminal, which outlives the call that opened it.

Its output is read as it arrives, even without a reader, and only head and tail are kept. So the command never blocks on
the server.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress

import anyio

from app_server.core.exec.command import Stream
from app_server.core.exec.process import KILL_SECONDS, Process
from app_server.core.exec.report import KILLED, execution_error, unavailable_error
from app_server.core.exec.streams import HeadTail, InputClosed

log = logging.getLogger(__name__)

READ_SIZE = 1 << 16
SESSION_CAP = 128 * 1024
"""Bytes of unread output that are kept, head and tail."""


class PtySession:
    """One running command on a terminal. `serve` must run in a task for as long as the session is wanted."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.on_output: Callable[[bytes], None] | None = None
        """Is called with output as it arrives, whether or not somebody reads it. It must not block or raise."""
        self.on_end: Callable[[], None] | None = None
        """Is called when the command has ended, after all its output."""
        self._unread = HeadTail(SESSION_CAP)
        self._ended = False
        self._changed = anyio.Event()

    @property
    def exit_code(self) -> int | None:
        """None while the command runs."""
        return None if self.process.report is None else self.process.report.exit_code

    @property
    def failure(self) -> str | None:
        """Why the command did not start; None if it did."""
        report = self.process.report
        if report is None or report.kind == "exit":
            return None
        return execution_error(report.code) if report.kind == "failed" else unavailable_error(report)

    async def serve(self) -> None:
        """Read output until the command ends. Never raises: a terminal that cannot be polled is killed."""
        try:
            await self.process.forward(self._take, READ_SIZE, drain=0.0)
        except OSError as error:
            log.warning("killed a terminal session that cannot be polled: %s", error.strerror)
            self.process.kill()
            self.process.report = KILLED
        finally:
            self.process.release()
            self._ended = True
        if self.on_end is not None:
            self.on_end()
        self._notify()

    async def write(self, data: bytes) -> None:
        """Write `data` to the terminal. Input is lost if the command has ended."""
        if self.process.stdin is not None:
            with suppress(InputClosed):
                await self.process.stdin.write(data)

    async def read(self, seconds: float) -> bytes:
        """Return the output since the last read, as soon as there is any; empty if the time is up or the command has
        ended.
        """
        with anyio.move_on_after(seconds):
            while not self._unread.total and not self._ended:
                await self._changed.wait()
        output, self._unread = self._unread, HeadTail(SESSION_CAP)
        return output.value()

    async def wait_ended(self) -> None:
        """Wait for the end of the command."""
        while not self._ended:
            await self._changed.wait()

    def kill(self) -> None:
        """Kill the whole process tree; `serve` gets the report."""
        self.process.kill()

    async def close(self) -> None:
        """Kill the command if it runs, and wait for its end within a bound."""
        self.kill()
        with anyio.move_on_after(KILL_SECONDS, shield=True):
            await self.wait_ended()

    async def _take(self, stream: Stream, chunk: bytes) -> None:
        self._unread.add(chunk)
        if self.on_output is not None:
            self.on_output(chunk)
        self._notify()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()
