"""The handle of a process that the launcher has started: its outputs, its input, the size of its terminal, its report.

A caller that starts a process reads its outputs with `forward`, or takes them over, and calls `release` in the end.
`run_to_end` keeps the output of a command. `hand_on` passes it to a receiver that may be slow: while the receiver
waits, the command waits too, and its time limit continues. `lasting` has terminals that outlive a call, and programs
that serve this server.
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
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager

import anyio
from msgspec import Struct

from app_server.engine.sandbox.exec import command
from app_server.engine.sandbox.exec.launcher_process import LauncherProcess, SandboxArgs, build
from app_server.engine.sandbox.exec.streams import (
    KILLED,
    READ_SIZE,
    STREAM_CAP,
    CommandRoot,
    HeadTail,
    Report,
    ReportReader,
    StdinWriter,
    enlarge,
    execution_error,
)
from app_server.engine.support.engine_errors import LaunchError, retry_hint
from app_server_protocol.engine.item_values import ExecOutputStream

KILL_SECONDS = 3.0
"""Timeout of the launcher's report of a kill, in seconds. The launcher's own bound for ending the tree is two
seconds.
"""

DRAIN_SECONDS = 0.5
"""Timeout for outputs after the end, in seconds, if a process that was left behind holds them open."""

LAST_READS = 64
"""Maximum number of reads after the end. It is more than the system buffers, and limits the output of a process that
was left behind.
"""

PIECE = 32 * 1024
"""Maximum size of one read, in bytes."""


TerminalSize = tuple[int, int]
"""Size of a terminal: rows and columns."""

USUAL_SIZE: TerminalSize = (24, 80)

TakeOutput = Callable[[ExecOutputStream, bytes], Awaitable[None]]
"""Callback that receives output in the order of the reads. Nothing more is read until it returns."""


class Process:
    """A process with its descendants, which the launcher's supervisor keeps together."""

    def __init__(
        self,
        channel: socket.socket,
        outputs: dict[int, ExecOutputStream],
        stdin: StdinWriter | None,
        terminal: int | None,
        selector: selectors.DefaultSelector,
    ) -> None:
        """Take ownership of all descriptors. `outputs` are by descriptor. `terminal` is the one of them that is a
        terminal.
        """
        self.stdin = stdin
        self.report: Report | None = None
        """The report. None until the process and its descendants have ended."""
        self._channel, self._outputs, self._terminal, self._selector = channel, outputs, terminal, selector
        self._reader = ReportReader(channel)
        for number in (channel.fileno(), *outputs):
            selector.register(number, selectors.EVENT_READ)

    @property
    def root(self) -> CommandRoot | None:
        """The root of the process tree. None if it is not known."""
        return self._reader.root

    def kill(self) -> None:
        """Let the supervisor kill the whole tree. The supervisor still sends a report."""
        with contextlib.suppress(OSError):  # it has ended
            self._channel.shutdown(socket.SHUT_WR)

    def terminate(self) -> None:
        """Send SIGTERM to the process group."""
        with contextlib.suppress(OSError):  # it has ended, or was killed already
            self._channel.send(bytes([signal.SIGTERM]))

    def resize(self, size: TerminalSize) -> None:
        """Set the size of the terminal. It has no effect if the process has no terminal, or none any more."""
        if self._terminal in self._outputs:
            _set_size(self._terminal, size)

    def take_over(self, stream: ExecOutputStream) -> int:
        """Return the descriptor of an output and release ownership: the caller reads and closes it."""
        number = next(number for number, name in self._outputs.items() if name is stream)
        self._selector.unregister(number)
        del self._outputs[number]
        return number

    async def forward(self, take: TakeOutput, piece: int = PIECE, drain: float = DRAIN_SECONDS) -> None:
        """Pass on outputs until the process and its outputs have ended. If a process that was left behind holds the
        outputs open, stop after `drain` seconds. A cancelled call can be repeated.
        """
        while self.report is None:
            await anyio.wait_readable(self._selector.fileno())
            await self._read_ready(take, piece)
        for _ in range(LAST_READS):
            if not self._outputs:
                break
            if self._selector.select(0):
                await self._read_ready(take, piece)
            elif drain <= 0:
                break
            else:
                began = anyio.current_time()
                with anyio.move_on_after(drain):
                    await anyio.wait_readable(self._selector.fileno())
                drain -= anyio.current_time() - began

    async def wait(self) -> None:
        """Wait for the report without reading outputs. No other task may wait for it."""
        while self.report is None:
            await anyio.wait_readable(self._channel)
            self.report = self._reader.read_report()

    async def end(self) -> None:
        """Kill the process if it runs, and wait for its end within a bound, even if the caller is cancelled."""
        if self.report is None:
            self.kill()
            with anyio.move_on_after(KILL_SECONDS, shield=True):
                await self.wait()

    async def wait_started(self, seconds: float) -> None:
        """Wait until the program runs; it may have ended since. Raises LaunchError."""
        with anyio.move_on_after(seconds):
            while not self._reader.started and self.report is None:
                await anyio.wait_readable(self._channel)
                self.report = self._reader.read_report()
        if self._reader.started:
            return
        if self.report is None:
            raise LaunchError(f"the program did not start within {seconds:g} seconds; try again")
        raise LaunchError(execution_error(self.report.code), self.report.code)

    def finished(self) -> Report:
        """Return the report, or that of a killed process if there is none. Raises LaunchError or SandboxUnavailable if
        nothing ran.
        """
        report = self.report or KILLED
        report.check()
        return report

    def release(self) -> None:
        """Close all descriptors. A running command is killed."""
        self._selector.close()
        self._channel.close()
        while self._outputs:
            os.close(self._outputs.popitem()[0])
        if self.stdin is not None:
            self.stdin.abandon()

    async def _read_ready(self, take: TakeOutput, piece: int) -> None:
        """Read once from each descriptor that is readable."""
        for key, _ in self._selector.select(0):
            if key.fd == self._channel.fileno():
                self.report = self._reader.read_report()
                if self.report is not None:
                    self._selector.unregister(self._channel)
            else:
                stream = self._outputs[key.fd]
                if chunk := self._read(key.fd, piece):
                    await take(stream, chunk)

    def _read(self, number: int, piece: int) -> bytes:
        """Read the available output. Return nothing at the end of an output, which is closed then."""
        try:
            chunk = os.read(number, piece)
        except BlockingIOError:
            return b""
        except OSError:  # a terminal that no process has open any more
            chunk = b""
        if not chunk:
            self._selector.unregister(number)
            del self._outputs[number]
            os.close(number)
        return chunk


@contextmanager
def launch_errors() -> Iterator[None]:
    """Convert OSError into LaunchError."""
    try:
        yield
    except OSError as error:
        reason = f"{error.strerror or error}{retry_hint(error.errno)}"
        raise LaunchError(f"the command could not be run: {reason}") from error


async def start(
    launcher: LauncherProcess,
    spec: command.CommandSpec,
    confinement: SandboxArgs | None,
    *,
    stdin: bool = False,
    size: TerminalSize | None = None,
    background: bool = False,
) -> Process:
    """Start `spec`, with input if `stdin`, or on a terminal of the given size. Raises LaunchError.

    With `background`, processes may outlive the command if it is not confined.
    """
    message = build(spec, confinement, terminal=size is not None, background=background)
    with launch_errors(), ExitStack() as kept, ExitStack() as handed_on:
        channel, theirs = socket.socketpair()
        kept.enter_context(channel)
        handed_on.enter_context(theirs)
        channel.setblocking(False)
        ends = _on_pipes(kept, handed_on, stdin) if size is None else _on_terminal(kept, handed_on, size)
        selector = kept.enter_context(selectors.DefaultSelector())
        process = Process(channel, ends.outputs, ends.stdin, ends.terminal, selector)
        await launcher.submit(message, [theirs.fileno(), *ends.remote])
        kept.pop_all()
        return process


class _Ends(Struct, frozen=True):
    """The two ends of a process's streams, before it starts."""

    outputs: dict[int, ExecOutputStream]
    stdin: StdinWriter | None
    terminal: int | None
    remote: list[int]
    """Descriptors that the process receives."""


def _on_pipes(kept: ExitStack, handed_on: ExitStack, stdin: bool) -> _Ends:
    writer: StdinWriter | None = None
    remote: list[int] = []
    if stdin:
        theirs, ours = os.pipe()
        kept.callback(os.close, ours)
        handed_on.callback(os.close, theirs)
        writer = StdinWriter(ours, terminal=False)
        remote.append(theirs)
    outputs: dict[int, ExecOutputStream] = {}
    for stream in ExecOutputStream:
        ours, theirs = os.pipe()
        kept.callback(os.close, ours)
        handed_on.callback(os.close, theirs)
        os.set_blocking(ours, False)
        enlarge(ours)
        outputs[ours] = stream
        remote.append(theirs)
    return _Ends(outputs, writer, None, remote)


def _on_terminal(kept: ExitStack, handed_on: ExitStack, size: TerminalSize) -> _Ends:
    master, slave = os.openpty()
    kept.callback(os.close, master)
    handed_on.callback(os.close, slave)
    typing = os.dup(master)
    kept.callback(os.close, typing)
    os.set_blocking(master, False)
    _set_size(slave, size)
    return _Ends({master: ExecOutputStream.STDOUT}, StdinWriter(typing, terminal=True), master, [slave])


def _set_size(terminal: int, size: TerminalSize) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))


async def run_to_end(
    launcher: LauncherProcess,
    spec: command.CommandSpec,
    confinement: SandboxArgs | None,
    on_output: command.OnOutput,
    cap: int = STREAM_CAP,
) -> command.ExecResult:
    """Run `spec`, confined if it has a plan, and keep `cap` bytes of each stream. Raises LaunchError or
    SandboxUnavailable if it cannot be executed.
    """
    captured, aggregated = {stream: HeadTail(cap) for stream in ExecOutputStream}, HeadTail(cap)

    async def keep(stream: ExecOutputStream, chunk: bytes) -> None:
        captured[stream].add(chunk)
        aggregated.add(chunk)
        on_output(stream, chunk)

    began = anyio.current_time()
    process = await start(launcher, spec, confinement, background=True)
    try:
        timed_out = await _forward_in_time(process, keep, spec.timeout_ms)
    finally:
        process.release()
    code = process.finished().exit_code
    stdout, stderr = (
        captured[stream].value() for stream in (ExecOutputStream.STDOUT, ExecOutputStream.STDERR)
    )
    return command.ExecResult(
        exit_code=command.TIMEOUT_EXIT_CODE if timed_out else code,
        stdout=stdout,
        stderr=stderr,
        aggregated=aggregated.value(),
        duration_s=anyio.current_time() - began,
        timed_out=timed_out,
        denied=spec.sandbox is not None and not timed_out and command.looks_denied(code, stdout, stderr),
    )


async def _forward_in_time(process: Process, take: TakeOutput, timeout_ms: int | None) -> bool:
    """Read until the end. Kill the tree at the time limit or on cancellation. Return whether the time limit was
    reached.
    """
    try:
        with anyio.move_on_after(None if timeout_ms is None else timeout_ms / 1000):
            await process.forward(take, READ_SIZE)
    finally:
        timed_out = process.report is None
        if timed_out:
            process.kill()
            with anyio.move_on_after(KILL_SECONDS, shield=True):
                await process.forward(take, READ_SIZE)
    return timed_out


async def hand_on(process: Process, take: TakeOutput, timeout_ms: int | None) -> int:
    """Pass on all output of a process, end the process in any case, and return its exit code. Raises LaunchError or
    SandboxUnavailable if it did not run.
    """
    timed_out = False

    async def limit(seconds: float) -> None:
        nonlocal timed_out
        await anyio.sleep(seconds)
        if process.report is None:
            timed_out = True
            process.kill()

    try:
        async with anyio.create_task_group() as group:
            if timeout_ms is not None:
                group.start_soon(limit, timeout_ms / 1000, name="time limit")
            await process.forward(take)
            group.cancel_scope.cancel()
    finally:
        await process.end()
        process.release()
    code = process.finished().exit_code
    return command.TIMEOUT_EXIT_CODE if timed_out else code
