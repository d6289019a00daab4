"""Runs one command to its end: sends it to the launcher, reads its output, enforces its time limit.

Returns once the launcher has reported the end. A cancelled caller returns after the tree is killed, within a bound.
"""

from __future__ import annotations

import errno
import os
import selectors
import socket
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import field

import anyio

from app_server.core.errors import LaunchError, SandboxUnavailable, retry_hint
from app_server.core.exec import launcher_process
from app_server.core.exec.command import (
    SIGNAL_EXIT_BASE,
    TIMEOUT_EXIT_CODE,
    CommandSpec,
    ExecResult,
    OnOutput,
    Stream,
    looks_denied,
)
from app_server.core.exec.launcher_process import LauncherProcess
from app_server.core.exec.report import (
    KILLED,
    Report,
    ReportReader,
    execution_error,
    unavailable_error,
)
from app_server.core.exec.streams import READ_SIZE, STREAM_CAP, HeadTail, enlarge
from protocol.records import dataclass

KILL_SECONDS = 3.0
"""How long the launcher may take to report a kill; its own bound for the tree is two seconds."""

DRAIN_SECONDS = 0.5
"""How long the pipes are read after the command's end, if a process that it left behind holds them open."""


@dataclass(slots=True)
class Running:
    """A running command on the server's side: its output streams, and the channel whose close kills it."""

    channel: socket.socket
    streams: dict[int, Stream]
    on_output: OnOutput
    cap: int
    """Bytes of each stream that are kept."""
    selector: selectors.DefaultSelector
    captured: dict[Stream, HeadTail] = field(init=False)
    aggregated: HeadTail = field(init=False)
    report: Report | None = None
    reader: ReportReader = field(init=False)

    def __post_init__(self) -> None:
        self.reader = ReportReader(self.channel)
        self.captured = {stream: HeadTail(self.cap) for stream in Stream}
        self.aggregated = HeadTail(self.cap)

    def register(self) -> None:
        for number in (self.channel.fileno(), *self.streams):
            self.selector.register(number, selectors.EVENT_READ)

    async def poll_once(self) -> None:
        """Wait until a stream or the channel is readable, and read each once."""
        await anyio.wait_readable(self.selector.fileno())
        for key, _ in self.selector.select(0):
            if key.fd == self.channel.fileno():
                self._read_report()
            else:
                self._read_stream(key.fd)

    async def until_reported(self) -> None:
        while self.report is None:
            await self.poll_once()

    async def until_drained(self) -> None:
        while self.streams:
            await self.poll_once()

    def kill(self) -> None:
        """Have the launcher kill the whole tree; it still sends a report."""
        try:
            self.channel.shutdown(socket.SHUT_WR)
        except OSError as error:
            if error.errno != errno.ENOTCONN:
                raise

    def _read_stream(self, number: int) -> None:
        try:
            chunk = os.read(number, READ_SIZE)
        except BlockingIOError:
            return
        stream = self.streams[number]
        if not chunk:
            self.selector.unregister(number)
            del self.streams[number]
            os.close(number)
            return
        self.captured[stream].add(chunk)
        self.aggregated.add(chunk)
        self.on_output(stream, chunk)

    def _read_report(self) -> None:
        self.report = self.reader.read_report()
        if self.report is not None:
            self.selector.unregister(self.channel)


async def run_to_end(
    launcher: LauncherProcess,
    spec: CommandSpec,
    confinement: launcher_process.Confinement | None,
    on_output: OnOutput,
    cap: int = STREAM_CAP,
) -> ExecResult:
    """Run `spec`, confined if it has a plan. Raises LaunchError or SandboxUnavailable if it cannot be executed."""
    message = launcher_process.build(spec, confinement)
    started = anyio.current_time()
    with launch_errors(), _pipes(cap) as (running, remote):
        running.on_output = on_output
        await launcher.submit(message, remote)
        for number in remote:
            os.close(number)
        remote.clear()
        running.register()
        timed_out = await _wait_until_reported(running, spec.timeout_ms)
        report = running.report or KILLED
        raise_unless_run(report)
        with anyio.move_on_after(DRAIN_SECONDS):
            await running.until_drained()
    return _result(spec, running, report, anyio.current_time() - started, timed_out)


@contextmanager
def launch_errors() -> Iterator[None]:
    """Convert OSError into LaunchError."""
    try:
        yield
    except OSError as error:
        reason = f"{error.strerror or error}{retry_hint(error.errno)}"
        raise LaunchError(f"the command could not be run: {reason}") from error


@contextmanager
def _pipes(cap: int) -> Iterator[tuple[Running, list[int]]]:
    """The server's ends, and the descriptors for the launcher. Closes those of both that are still open at the end."""
    streams: dict[int, Stream] = {}
    remote: list[int] = []
    with ExitStack() as opened:
        opened.callback(_close_all, streams)
        opened.callback(_close_all, remote)
        ours, theirs = socket.socketpair()
        opened.enter_context(ours)
        remote.append(theirs.detach())
        ours.setblocking(False)
        for stream in Stream:
            number, writer = os.pipe()
            streams[number] = stream
            remote.append(writer)
            os.set_blocking(number, False)
            enlarge(number)
        selector = opened.enter_context(selectors.DefaultSelector())
        yield Running(ours, streams, lambda stream, chunk: None, cap, selector), remote


def _close_all(numbers: Iterable[int]) -> None:
    for number in numbers:
        os.close(number)


async def _wait_until_reported(running: Running, timeout_ms: int | None) -> bool:
    """Wait for the report; kill the tree at the time limit or on cancellation. Returns True after a time-out."""
    try:
        with anyio.move_on_after(None if timeout_ms is None else timeout_ms / 1000):
            await running.until_reported()
    finally:
        timed_out = running.report is None
        if timed_out:
            running.kill()
            with anyio.move_on_after(KILL_SECONDS, shield=True):
                await running.until_reported()
    return timed_out


def raise_unless_run(report: Report) -> None:
    if report.kind == "failed":
        raise LaunchError(execution_error(report.code), report.code)
    if report.kind == "unavailable":
        raise SandboxUnavailable(unavailable_error(report), report.code)


def _result(
    spec: CommandSpec, running: Running, report: Report, seconds: float, timed_out: bool
) -> ExecResult:
    code = report.code if report.code >= 0 else SIGNAL_EXIT_BASE - report.code
    stdout, stderr = (running.captured[stream].value() for stream in (Stream.STDOUT, Stream.STDERR))
    return ExecResult(
        exit_code=TIMEOUT_EXIT_CODE if timed_out else code,
        stdout=stdout,
        stderr=stderr,
        aggregated=running.aggregated.value(),
        duration_s=seconds,
        timed_out=timed_out,
        denied=spec.sandbox is not None and not timed_out and looks_denied(code, stdout, stderr),
    )
