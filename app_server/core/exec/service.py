"""A program that serves this server over its stdin and stdout, with the user's rights, such as an MCP server.

The launcher starts it, and kills it with all its descendants when this server ends.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from contextlib import ExitStack
from dataclasses import field

import anyio

from app_server.core.errors import LaunchError
from app_server.core.exec import request
from app_server.core.exec.command import CommandSpec
from app_server.core.exec.launcher_process import LauncherProcess
from app_server.core.exec.pipes import PipeReceiveStream, PipeSendStream
from app_server.core.exec.report import Report, ReportReader, execution_error
from app_server.core.exec.run import launch_errors
from protocol.records import dataclass

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
    message = request.build(spec, None, background=False)
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
