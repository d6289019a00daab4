"""A link to a server process: one JSON message per line on its stdin and stdout.

Steps to end a process: close its stdin, wait, SIGTERM, wait, kill the whole tree. Each wait is short, because the end
of the conversation waits for it.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream
from anyio.streams.memory import MemoryObjectReceiveStream

from app_server.core.config.types import McpStdioTransport
from app_server.core.mcp.faults import OUTGOING_QUEUE, STDERR_LINES
from app_server.core.mcp.interfaces import McpProcess, McpRuntime
from app_server.core.mcp.launch import find_program, process_environment, starting_folder
from app_server.core.mcp.mcp_client import OnMessage
from app_server.core.mcp.rpc_messages import LineSplitter, encode
from app_server.core.threads import YieldBudget
from protocol.structs import Json

log = logging.getLogger(__name__)

EOF_GRACE_SECONDS = 0.3
TERM_GRACE_SECONDS = 0.5
_GONE = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError)


class StdioLink:
    """A link over the standard streams of one process."""

    def __init__(self, name: str, process: McpProcess) -> None:
        self._name = name
        self._process = process
        self._outgoing, self._waiting = anyio.create_memory_object_stream[bytes](OUTGOING_QUEUE)

    async def receive(self, on_message: OnMessage) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(_write, self._process.stdin, self._waiting)
            group.start_soon(self._drain, self._process.stderr)
            await self._read_messages(on_message)
            group.cancel_scope.cancel()

    async def send(self, message: Json) -> None:
        with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await self._outgoing.send(encode(message))

    def send_soon(self, message: Json) -> None:
        with contextlib.suppress(anyio.WouldBlock, anyio.BrokenResourceError, anyio.ClosedResourceError):
            self._outgoing.send_nowait(encode(message))

    def set_protocol_version(self, version: str) -> None:
        """Do nothing: the version makes no difference on a pipe."""

    def close(self) -> None:
        self._outgoing.close()
        self._waiting.close()

    async def _read_messages(self, on_message: OnMessage) -> None:
        lines, budget = LineSplitter(), YieldBudget()
        with contextlib.suppress(*_GONE):
            while True:
                chunk = await self._process.stdout.receive()
                for message in lines.feed(chunk):
                    if message is not None:
                        on_message(message)
                    await budget.spend(0)
                await budget.spend(len(chunk))

    async def _drain(self, stream: ByteReceiveStream) -> None:
        """Read stderr to its end, because a server blocks when the pipe is full."""
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
    name: str, transport: McpStdioTransport, runtime: McpRuntime
) -> AsyncIterator[StdioLink]:
    """Start the process, and end it on exit. Raises OSError and McpFailure if it cannot start."""
    place = starting_folder(name, transport, runtime.home, runtime.cwd)
    env = process_environment(transport, runtime.environment, place, runtime.cwd)
    program = find_program(transport.command, env, place)
    process = await runtime.spawner.open([program, *transport.args], env, place)
    link = StdioLink(name, process)
    try:
        yield link
    finally:
        link.close()
        with anyio.CancelScope(shield=True):
            await _end(process)


async def _end(process: McpProcess) -> None:
    """End a process. Runs in a shield: every wait in here is bounded."""
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
