"""Processes that outlive the call that started them.

There are two kinds: a command on its own terminal, and a program that serves this server over its stdin and stdout,
such as an MCP server, with the user's rights. The output of a terminal is read as it arrives, even if no caller reads
it, and only head and tail are kept. So the command never blocks on the server. The launcher kills each process with all
its descendants at the latest when this server ends.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import suppress

import anyio
import anyio.lowlevel
from anyio.abc import ByteReceiveStream, ByteSendStream

from app_server.engine.sandbox.exec.command import CommandSpec
from app_server.engine.sandbox.exec.command_process import KILL_SECONDS, Process, start
from app_server.engine.sandbox.exec.launcher_process import LauncherProcess
from app_server.engine.sandbox.exec.streams import KILLED, READ_SIZE, HeadTail, StdinWriter
from app_server.engine.support.engine_errors import InputClosed
from app_server_protocol.events.command_events import ExecOutputStream

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


START_SECONDS = 10.0
"""Timeout of the launcher's start of a program, in seconds; it is long enough for a busy machine."""


class PipeReceiveStream(ByteReceiveStream):
    """The reading end of a pipe. The stream owns it and closes it once."""

    def __init__(self, number: int) -> None:
        self._number = number

    async def receive(self, max_bytes: int = READ_SIZE) -> bytes:
        """Return the available output, as soon as there is any."""
        await anyio.lowlevel.checkpoint()
        while True:
            if self._number < 0:
                raise anyio.ClosedResourceError
            try:
                data = os.read(self._number, max_bytes)
            except BlockingIOError:
                await anyio.wait_readable(self._number)
                continue
            if not data:
                raise anyio.EndOfStream
            return data

    async def aclose(self) -> None:
        self.close()

    def close(self) -> None:
        """Close the pipe, if it is open."""
        number, self._number = self._number, -1
        if number >= 0:
            os.close(number)


class PipeSendStream(ByteSendStream):
    """The input of a program as a stream of bytes."""

    def __init__(self, writer: StdinWriter) -> None:
        self._writer = writer

    async def send(self, item: bytes) -> None:
        """Return once the program has read the bytes, or the system buffers them."""
        await anyio.lowlevel.checkpoint()
        try:
            await self._writer.write(item)
        except InputClosed as error:
            raise anyio.BrokenResourceError from error

    async def aclose(self) -> None:
        self._writer.abandon()


class ServiceProcess:
    """One running program with its three streams."""

    def __init__(self, process: Process) -> None:
        assert process.stdin is not None
        self._process = process
        self.stdin = PipeSendStream(process.stdin)
        self.stdout = PipeReceiveStream(process.take_over(ExecOutputStream.STDOUT))
        self.stderr = PipeReceiveStream(process.take_over(ExecOutputStream.STDERR))

    async def wait(self) -> None:
        """Wait until the program and its descendants have ended. Other processes may still hold its streams open."""
        await self._process.wait()

    def terminate(self) -> None:
        """Send SIGTERM to the program's process group."""
        self._process.terminate()

    def kill(self) -> None:
        """Kill the program's whole process tree."""
        self._process.kill()

    async def close(self) -> None:
        """Kill the tree, wait for its end within a bound, and close the streams."""
        await self._process.end()
        self._process.release()
        self.stdout.close()
        self.stderr.close()


async def open_service(launcher: LauncherProcess, spec: CommandSpec) -> ServiceProcess:
    """Start `spec`, unconfined, with pipes for its three streams. Raises LaunchError if it cannot be executed."""
    process = await start(launcher, spec, None, stdin=True)
    try:
        await process.wait_started(START_SECONDS)
        return ServiceProcess(process)
    except BaseException:
        process.release()
        raise
