"""Processes that outlive the call that started them.

There are two kinds: a command on its own terminal, and a program that serves this server over its stdin and stdout,
such as an MCP server, with the user's rights. The output of a terminal is read as it arrives, even if no caller reads
it, and only head and tail are kept. So the command never blocks on the server. The launcher kills each process with all
its descendants at the latest when this server ends.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress

import anyio
import anyio.lowlevel

from app_server.engine.sandbox.exec.command_process import KILL_SECONDS, Process
from app_server.engine.sandbox.exec.streams import KILLED, HeadTail
from app_server.engine.support.engine_errors import InputClosed
from app_server_protocol.engine.item_values import ExecOutputStream

log = logging.getLogger(__name__)

TERMINAL_READ = 1 << 16
SESSION_CAP = 128 * 1024
"""Maximum size of unread output that is kept, head and tail, in bytes."""


class PtySession:
    """One running command on a terminal. `serve` must run in a task for the lifetime of the session."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.on_output: Callable[[bytes], None] | None = None
        """Callback for output as it arrives, whether or not `read` is called. It must not block or raise."""
        self.on_end: Callable[[], None] | None = None
        """Callback for the end of the command, after all its output."""
        self._unread = HeadTail(SESSION_CAP)
        self._ended = False
        self._changed = anyio.Event()

    @property
    def exit_code(self) -> int | None:
        """The exit code. None while the command runs."""
        return None if self.process.report is None else self.process.report.exit_code

    def check(self) -> None:
        """Raise LaunchError or SandboxUnavailable if the command did not start."""
        if self.process.report is not None:
            self.process.report.check()

    async def serve(self) -> None:
        """Read output until the command ends. Never raises: a terminal that cannot be polled is killed."""
        try:
            await self.process.forward(self._take, TERMINAL_READ, drain=0.0)
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
        """Return the output since the last read, as soon as there is any. Return nothing if the time is up or the
        command has ended.
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

    async def _take(self, stream: ExecOutputStream, chunk: bytes) -> None:
        self._unread.add(chunk)
        if self.on_output is not None:
            self.on_output(chunk)
        self._notify()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()
