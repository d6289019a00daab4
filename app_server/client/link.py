"""A connection to a server: its interface, its connector, and a server as a child process.

A child process has pipes, its stderr is read, and it is ended. A program that hosts the server itself brings its own
connector (`app_server.in_process`).
"""

from __future__ import annotations

import logging
import subprocess
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Protocol

import anyio
from anyio.abc import ByteReceiveStream, Process
from msgspec import Struct

from app_server.client.failures import ServerEnded
from app_server_protocol import framing


class ServerLink(framing.Transport, Protocol):
    """An open connection to one server."""

    async def close(self) -> None:
        """End the server's input, so that it stores everything and ends."""
        ...

    async def cause_of_end(self) -> str:
        """Return the reason of the server's end as text for a person. Called once its output has ended; returns within
        seconds.
        """
        ...


class Connector(Protocol):
    """Opens a connection to a new server. When the context ends, no process of that server is left."""

    def open(self) -> AbstractAsyncContextManager[ServerLink]: ...


log = logging.getLogger(__name__)

OWN_COMMAND = (sys.executable, "-P", "-m", "app_server")
"""Command that starts the server of this installation. `-P` keeps modules in the working directory from being
imported.
"""

ENDS_WITHIN = 3.0
"""Timeout for a server to end after its output has ended or is not read any more, and after each signal, in seconds."""

STDERR_LINES = 20
LONGEST_STDERR_LINE = 2000
READ_SIZE = 1 << 16


class SubprocessConnector(Struct, frozen=True, kw_only=True):
    """Connector that starts a server as a child process.

    If `environment` is None, the server gets the environment of this process. The server gets a session of its own, so
    that Ctrl-C in a terminal reaches this process only.
    """

    command: Sequence[str] = OWN_COMMAND
    environment: Mapping[str, str] | None = None
    cwd: Path | str | None = None
    on_stderr: Callable[[str], None] | None = None
    """Callback for every line that the server logs."""
    on_exit: Callable[[int], None] | None = None
    """Callback for the exit status, negative for a signal, after the connection has been closed."""
    longest_line: int = framing.DEFAULT_LINE_LIMIT
    """Maximum length of a line, in bytes; longer lines are not read."""

    @asynccontextmanager
    async def open(self) -> AsyncIterator[ServerLink]:
        """Start the server. Raises ServerEnded if the command cannot be started."""
        try:
            process = await anyio.open_process(
                self.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=self.environment,
                cwd=self.cwd,
                start_new_session=True,
            )
        except OSError as error:
            raise ServerEnded(f"cannot start the server {self.command[0]!r}: {error}") from error
        link = ProcessLink(process, self.on_stderr, self.longest_line)
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(link.read_stderr, name="stderr of the server")
                try:
                    yield link
                finally:
                    with anyio.CancelScope(shield=True):
                        await _end(process)
                    group.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await process.aclose()
            if self.on_exit is not None and process.returncode is not None:
                self.on_exit(process.returncode)


def shared_server(
    socket: Path | str | None = None,
    *,
    options: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    cwd: Path | str | None = None,
) -> SubprocessConnector:
    """Return a connector to the user's shared server, or to the one behind a socket, through `app-server proxy`. The
    user's shared server is started if none runs. `options` are those of the command line: `-c`, `--profile` …
    """
    place = () if socket is None else ("--sock", str(socket))
    return SubprocessConnector(
        command=(*OWN_COMMAND, "proxy", *place, *options), environment=environment, cwd=cwd
    )


class ProcessLink:
    """The pipes of a started server."""

    def __init__(self, process: Process, on_stderr: Callable[[str], None] | None, longest_line: int) -> None:
        assert process.stdin is not None  # all three are pipes, see `SubprocessConnector`
        assert process.stdout is not None
        assert process.stderr is not None
        self._process = process
        self._stdin, self._stdout, self._stderr = process.stdin, process.stdout, process.stderr
        self._on_stderr, self._longest_line = on_stderr, longest_line
        self._last_lines: deque[str] = deque(maxlen=STDERR_LINES)
        self._stderr_ended = anyio.Event()

    @property
    def pid(self) -> int:
        return self._process.pid

    async def lines(self) -> AsyncIterator[list[bytes | framing.Oversized]]:
        decoder = framing.LineDecoder(self._longest_line)
        async for data in _chunks(self._stdout):
            if lines := decoder.feed(data):
                yield lines

    async def write(self, data: bytes) -> None:
        try:
            await self._stdin.send(data)
        except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise framing.TransportClosed from error

    async def close(self) -> None:
        await self._stdin.aclose()

    async def read_stderr(self) -> None:
        decoder = framing.LineDecoder(1 << 20)
        async for data in _chunks(self._stderr):
            for line in decoder.feed(data):
                self._log(line)
        if rest := decoder.close():
            self._log(rest)
        self._stderr_ended.set()

    def _log(self, line: bytes | framing.Oversized) -> None:
        text = line.decode("utf-8", "replace") if isinstance(line, bytes) else "(a line over 1 MiB)"
        self._last_lines.append(text[:LONGEST_STDERR_LINE])
        if self._on_stderr is not None:
            try:
                self._on_stderr(text)
            except Exception:
                log.exception("on_stderr failed")

    async def cause_of_end(self) -> str:
        with anyio.move_on_after(ENDS_WITHIN):
            await self._process.wait()
            await self._stderr_ended.wait()
        return "\n".join([_ending(self._process.returncode), *self._last_lines])


async def _chunks(stream: ByteReceiveStream) -> AsyncIterator[bytes]:
    while True:
        try:
            yield await stream.receive(READ_SIZE)
        except (OSError, anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            return


def _ending(returncode: int | None) -> str:
    if returncode is None:
        return "the server closed its output"
    if returncode < 0:
        return f"the server was ended by signal {-returncode}"
    return f"the server ended with exit status {returncode}"


async def _end(process: Process) -> None:
    """End the server, with the mildest means that works."""
    assert process.stdin is not None
    await process.stdin.aclose()
    for signal in (process.terminate, process.kill, None):
        with anyio.move_on_after(ENDS_WITHIN):
            await process.wait()
            return
        if signal is not None:
            signal()
