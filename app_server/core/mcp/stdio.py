"""A server as a child process: one JSON message a line on its stdin and stdout, its stderr read and dropped.

Ending one goes in steps: close its stdin, wait, SIGTERM, wait, kill the whole tree. Each wait is short,
because a conversation's end waits for it.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Mapping

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream
from anyio.streams.memory import MemoryObjectReceiveStream

from app_server.core.config.types import McpStdioTransport
from app_server.core.mcp.contract import McpProcess, ProcessSpawner, Take
from app_server.core.mcp.limits import OUTGOING_QUEUE, STDERR_LINES
from app_server.core.mcp.messages import LineSplitter, encode
from app_server.core.mcp.surroundings import find_program, process_environment
from app_server.core.yielding import YieldBudget
from protocol.base import Json

log = logging.getLogger(__name__)

EOF_GRACE_SECONDS = 0.3
TERM_GRACE_SECONDS = 0.5
_GONE = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError)


class StdioLink:
    """The streams of one process, cut into messages."""

    def __init__(self, name: str, process: McpProcess) -> None:
        self._name = name
        self._process = process
        self._outgoing, self._waiting = anyio.create_memory_object_stream[bytes](OUTGOING_QUEUE)

    async def run(self, take: Take) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(_write, self._process.stdin, self._waiting)
            group.start_soon(self._drain, self._process.stderr)
            await self._read(take)
            group.cancel_scope.cancel()

    async def send(self, message: Json) -> None:
        with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await self._outgoing.send(encode(message))

    def send_soon(self, message: Json) -> None:
        with contextlib.suppress(anyio.WouldBlock, anyio.BrokenResourceError, anyio.ClosedResourceError):
            self._outgoing.send_nowait(encode(message))

    def agreed(self, version: str) -> None:
        """Nothing on a pipe depends on the version."""

    def close(self) -> None:
        self._outgoing.close()
        self._waiting.close()

    async def _read(self, take: Take) -> None:
        lines, budget = LineSplitter(), YieldBudget()
        with contextlib.suppress(*_GONE):
            while True:
                chunk = await self._process.stdout.receive()
                for message in lines.feed(chunk):
                    if message is not None:
                        take(message)
                    await budget.spend(0)
                await budget.spend(len(chunk))

    async def _drain(self, stream: ByteReceiveStream) -> None:
        """A server that finds its stderr full stands still."""
        left = STDERR_LINES
        with contextlib.suppress(*_GONE):
            while True:
                data = await stream.receive()
                for line in data[:4096].splitlines()[:left]:
                    log.debug(
                        "MCP server %s wrote to stderr: %s", self._name, line[:200].decode("utf-8", "replace")
                    )
                    left -= 1


async def _write(stream: ByteSendStream, waiting: MemoryObjectReceiveStream[bytes]) -> None:
    with contextlib.suppress(*_GONE):
        async for data in waiting:
            await stream.send(data)


@contextlib.asynccontextmanager
async def open_stdio(
    name: str, transport: McpStdioTransport, user: Mapping[str, str], cwd: str, spawner: ProcessSpawner
) -> AsyncIterator[StdioLink]:
    """Starts the process and ends it on the way out. Raises OSError where it cannot be started."""
    env = process_environment(transport, user)
    place = str(transport.cwd) if transport.cwd is not None else cwd
    program = find_program(transport.command, env, place)
    process = await spawner.open([program, *transport.args], env, place)
    link = StdioLink(name, process)
    try:
        yield link
    finally:
        link.close()
        with anyio.CancelScope(shield=True):
            await _end(process)


async def _end(process: McpProcess) -> None:
    """In a shield: every wait in here is bounded."""
    with anyio.move_on_after(EOF_GRACE_SECONDS), contextlib.suppress(*_GONE):
        await process.stdin.aclose()
        await process.wait()
        await process.close()
        return
    process.terminate()
    with anyio.move_on_after(TERM_GRACE_SECONDS):
        await process.wait()
    process.kill()
    await process.close()
