"""A program that serves this process over its stdin and stdout, as MCP servers do, started by the launcher."""

from __future__ import annotations

import os

import anyio
import anyio.lowlevel
from anyio.abc import ByteReceiveStream, ByteSendStream

from app_server.engine.sandbox.exec.command import CommandSpec
from app_server.engine.sandbox.exec.command_process import Process, start
from app_server.engine.sandbox.exec.launcher_process import LauncherProcess
from app_server.engine.sandbox.exec.streams import READ_SIZE, StdinWriter
from app_server.engine.support.engine_errors import InputClosed
from app_server_protocol.engine.item_values import ExecOutputStream

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
