"""Processes that somebody talks to while they run: a command of a client, and a program that serves this server.

The output of a command is handed on as it comes, to somebody who may be slow, and who may write to it. It runs with a
pipe for each stream, or on a terminal of its own. Where the receiver of the output waits, the command does; its time
limit goes on. When it has ended nothing of it is left, also without a sandbox.

A service, such as an MCP server, has the user's rights and serves over its stdin and stdout. The launcher starts it,
and kills it with all its descendants when this server ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import selectors
import signal
import socket
import struct
import termios
from collections.abc import Awaitable, Callable, Iterable
from contextlib import ExitStack
from dataclasses import field

import anyio
from msgspec import Struct

from app_server.core.errors import LaunchError
from app_server.core.exec import launcher_process
from app_server.core.exec.command import SIGNAL_EXIT_BASE, TIMEOUT_EXIT_CODE, CommandSpec, Stream
from app_server.core.exec.launcher_process import LauncherProcess
from app_server.core.exec.report import KILLED, Report, ReportReader, execution_error
from app_server.core.exec.run import DRAIN_SECONDS, KILL_SECONDS, launch_errors, raise_unless_run
from app_server.core.exec.streams import PipeReceiveStream, PipeSendStream, StdinWriter
from protocol.records import dataclass

READ_SIZE = 32 * 1024
"""Of one piece of output."""
LAST_READS = 64
"""After the end of the command: more than the system keeps in its pipes or its terminal."""

TakeOutput = Callable[[Stream, bytes], Awaitable[None]]


class TerminalSize(Struct, frozen=True):
    rows: int
    columns: int


@dataclass(slots=True)
class StreamedCommand:
    """One running command. Its opener calls `run`, which ends it in any case."""

    channel: socket.socket
    streams: dict[int, Stream]
    """By descriptor."""
    selector: selectors.DefaultSelector
    stdin: StdinWriter | None
    """None: it has no input."""
    master: int | None
    """The terminal's descriptor among `streams`."""
    report: Report | None = None
    timed_out: bool = False
    reader: ReportReader = field(init=False)

    def __post_init__(self) -> None:
        self.reader = ReportReader(self.channel)

    async def run(self, take: TakeOutput, timeout_ms: int | None) -> int:
        """Hand on all output; returns the exit code. Raises LaunchError or SandboxUnavailable if it did not run."""
        try:
            async with anyio.create_task_group() as group:
                if timeout_ms is not None:
                    group.start_soon(self._limit, timeout_ms / 1000, name="time limit")
                await self._hand_on(take)
                group.cancel_scope.cancel()
        finally:
            await self._close()
        report = self.report or KILLED
        raise_unless_run(report)
        if self.timed_out:
            return TIMEOUT_EXIT_CODE
        return report.code if report.code >= 0 else SIGNAL_EXIT_BASE - report.code

    def resize(self, size: TerminalSize) -> None:
        """Nothing without a terminal, or when it has closed."""
        if self.master in self.streams:
            _set_size(self.master, size)

    def kill(self) -> None:
        """Have the supervisor kill the whole tree."""
        try:
            self.channel.shutdown(socket.SHUT_WR)
        except OSError:  # it has ended
            return

    async def _limit(self, seconds: float) -> None:
        await anyio.sleep(seconds)
        if self.report is None:
            self.timed_out = True
            self.kill()

    async def _hand_on(self, take: TakeOutput) -> None:
        reads = 0
        while self.report is None or self.streams:
            with anyio.move_on_after(None if self.report is None else DRAIN_SECONDS) as waited:
                await anyio.wait_readable(self.selector.fileno())
            if waited.cancelled_caught or reads > LAST_READS:
                return
            for key, _ in self.selector.select(0):
                if key.fd == self.channel.fileno():
                    self._read_report()
                    continue
                stream = self.streams[key.fd]
                if chunk := self._read(key.fd):
                    await take(stream, chunk)
            reads += self.report is not None

    def _read_report(self) -> None:
        self.report = self.reader.read_report()
        if self.report is not None:
            self.selector.unregister(self.channel)

    def _read(self, number: int) -> bytes:
        """Empty at the end of the stream, which is closed then, and where there is nothing now."""
        try:
            chunk = os.read(number, READ_SIZE)
        except BlockingIOError:
            return b""
        except OSError:  # a terminal that no process has open any more
            chunk = b""
        if not chunk:
            self.selector.unregister(number)
            del self.streams[number]
            os.close(number)
        return chunk

    async def _close(self) -> None:
        with anyio.CancelScope(shield=True):
            if self.report is None:
                self.kill()
                with anyio.move_on_after(KILL_SECONDS):
                    await self._until_reported()
            if self.stdin is not None:
                await self.stdin.abandon()
        self.selector.close()
        self.channel.close()
        _close_all(self.streams)
        self.streams.clear()

    async def _until_reported(self) -> None:
        while self.report is None:
            await anyio.wait_readable(self.channel)
            self.report = self.reader.read_report()


async def open_streamed(
    launcher: LauncherProcess,
    spec: CommandSpec,
    confinement: launcher_process.Confinement | None,
    *,
    stdin: bool,
    terminal: TerminalSize | None,
) -> StreamedCommand:
    """Start `spec`, with input if `stdin`, or on a terminal of that size. Raises LaunchError."""
    message = launcher_process.build(spec, confinement, terminal=terminal is not None, background=False)
    with launch_errors(), ExitStack() as kept, ExitStack() as handed_on:
        ours, theirs = socket.socketpair()
        kept.enter_context(ours)
        handed_on.enter_context(theirs)
        ours.setblocking(False)
        if terminal is None:
            opened = _with_pipes(kept, handed_on, stdin=stdin)
        else:
            opened = _on_terminal(kept, handed_on, terminal)
        selector = kept.enter_context(selectors.DefaultSelector())
        for number in (ours.fileno(), *opened.streams):
            selector.register(number, selectors.EVENT_READ)
        await launcher.submit(message, [theirs.fileno(), *opened.remote])
        kept.pop_all()
        return StreamedCommand(ours, opened.streams, selector, opened.stdin, opened.master)


class OpenedStreams(Struct, frozen=True):
    """Both ends of a command's streams, before it starts."""

    streams: dict[int, Stream]
    stdin: StdinWriter | None
    master: int | None
    remote: list[int]
    """What the command gets."""


def _with_pipes(kept: ExitStack, handed_on: ExitStack, *, stdin: bool) -> OpenedStreams:
    typed: StdinWriter | None = None
    remote: list[int] = []
    if stdin:
        reader, writer = os.pipe()
        kept.callback(os.close, writer)
        handed_on.callback(os.close, reader)
        os.set_blocking(writer, False)
        typed = StdinWriter(writer, terminal=False)
        remote.append(reader)
    streams: dict[int, Stream] = {}
    for stream in Stream:
        reader, writer = os.pipe()
        kept.callback(os.close, reader)
        handed_on.callback(os.close, writer)
        os.set_blocking(reader, False)
        streams[reader] = stream
        remote.append(writer)
    return OpenedStreams(streams, typed, None, remote)


def _on_terminal(kept: ExitStack, handed_on: ExitStack, size: TerminalSize) -> OpenedStreams:
    master, slave = os.openpty()
    kept.callback(os.close, master)
    handed_on.callback(os.close, slave)
    typing = os.dup(master)
    kept.callback(os.close, typing)
    os.set_blocking(master, False)
    _set_size(slave, size)
    return OpenedStreams({master: Stream.STDOUT}, StdinWriter(typing, terminal=True), master, [slave])


def _set_size(number: int, size: TerminalSize) -> None:
    fcntl.ioctl(number, termios.TIOCSWINSZ, struct.pack("HHHH", size.rows, size.columns, 0, 0))


def _close_all(numbers: Iterable[int]) -> None:
    for number in numbers:
        os.close(number)


START_SECONDS = 10.0
"""How long the launcher may take to start it on a busy machine."""

CLOSE_SECONDS = 3.0
"""Longer than the bound after which its supervisor gives up on a process that cannot be killed."""


@dataclass(slots=True)
class ServiceProcess:
    """One running program."""

    stdin: PipeSendStream
    stdout: PipeReceiveStream
    stderr: PipeReceiveStream
    _channel: socket.socket = field(repr=False)
    _reader: ReportReader = field(repr=False)
    _report: Report | None = None

    async def wait(self) -> None:
        """Wait until it and its descendants have ended. Other processes may still hold its streams open."""
        while self._report is None:
            await anyio.wait_readable(self._channel)
            self._report = self._reader.read_report()

    def terminate(self) -> None:
        """Send SIGTERM to its process group."""
        with contextlib.suppress(OSError):  # it has ended, or was killed already
            self._channel.send(bytes([signal.SIGTERM]))

    def kill(self) -> None:
        """Kill its whole tree by closing the channel to its supervisor."""
        with contextlib.suppress(OSError):
            self._channel.shutdown(socket.SHUT_WR)

    async def close(self) -> None:
        """Kill the tree, wait for its end within a bound, and close the streams."""
        self.kill()
        with anyio.move_on_after(CLOSE_SECONDS, shield=True):
            await self.wait()
        self._channel.close()
        for stream in (self.stdin, self.stdout, self.stderr):
            stream.close()


async def open_service(launcher: LauncherProcess, spec: CommandSpec) -> ServiceProcess:
    """Start `spec`, unconfined, with pipes for its three streams. Raises LaunchError if it cannot be executed."""
    message = launcher_process.build(spec, None, background=False)
    with launch_errors(), ExitStack() as kept, ExitStack() as handed_on:
        ours, theirs = socket.socketpair()
        kept.enter_context(ours)
        handed_on.enter_context(theirs)
        ours.setblocking(False)
        near: list[int] = []
        far: list[int] = []
        for stream in range(3):
            reader, writer = os.pipe()
            mine, its = (writer, reader) if stream == 0 else (reader, writer)
            kept.callback(os.close, mine)
            handed_on.callback(os.close, its)
            near.append(mine)
            far.append(its)
        await launcher.submit(message, [theirs.fileno(), *far])
        handed_on.close()
        report_reader = ReportReader(ours)
        await _wait_until_started(ours, report_reader)
        kept.pop_all()
        stdin, stdout, stderr = near
        return ServiceProcess(
            PipeSendStream(stdin), PipeReceiveStream(stdout), PipeReceiveStream(stderr), ours, report_reader
        )


async def _wait_until_started(channel: socket.socket, reader: ReportReader) -> None:
    """Wait until the program has started; it may have ended since. Raises LaunchError."""
    report: Report | None = None
    with anyio.move_on_after(START_SECONDS):
        while not reader.started and report is None:
            await anyio.wait_readable(channel)
            report = reader.read_report()
    if reader.started:
        return
    if report is None:
        raise LaunchError(f"the program did not start within {START_SECONDS:g} seconds; try again")
    raise LaunchError(execution_error(report.code), report.code)
