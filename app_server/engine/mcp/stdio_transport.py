"""A link to a server process: its start, and one JSON message per line on its stdin and stdout.

The launcher starts the process, and kills its process tree when this process ends. The server receives an allow-list of
variables and the ones that its settings name; the others may be credentials of this server. Steps to end a process:
close its stdin, wait, SIGTERM, wait, kill the whole tree. Each wait is short, because the end of the conversation waits
for it.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import shutil
from collections.abc import AsyncIterator, Mapping, Sequence

import anyio
from anyio.abc import ByteReceiveStream

from app_server.engine.config.mcp_server_settings import WORKSPACE, McpStdioTransport
from app_server.engine.mcp.mcp_errors import STDERR_LINES, McpFailure
from app_server.engine.mcp.mcp_transport import McpTransport, OnMessage
from app_server.engine.mcp.rpc_messages import LineSplitter, encode
from app_server.engine.mcp.runtime_interface import McpRuntime
from app_server.engine.sandbox.exec.command_runner import CommandRunner
from app_server.engine.sandbox.exec.service import ServiceProcess
from app_server.engine.support.engine_errors import LaunchError
from app_server.engine.support.private_folders import own_folder
from app_server.engine.support.real_path import real_path, within
from app_server.engine.support.worker_threads import YieldBudget

PASSED_ON = frozenset(
    {"HOME", "LOGNAME", "PATH", "SHELL", "USER", "LANG", "LC_ALL", "LC_CTYPE", "LC_MESSAGES", "TERM",
     "TMPDIR", "TZ", "__CF_USER_TEXT_ENCODING"}
)  # fmt: skip


def starting_folder(name: str, transport: McpStdioTransport, home: str, workspace: str) -> str:
    """Return the folder in which a server starts. It is never the workspace unless the user says so, because
    interpreters and package runners load modules and programs from their folder. Raises McpFailure if the settings are
    ambiguous.
    """
    if transport.cwd == WORKSPACE:
        return workspace
    if transport.cwd is not None and not os.path.isabs(transport.cwd):
        raise McpFailure(f'its `cwd` is relative: name an absolute path, or `cwd = "{WORKSPACE}"`')
    if os.sep in transport.command and not os.path.isabs(transport.command) and transport.cwd is None:
        raise McpFailure(f'its `command` is relative: name an absolute path, or set `cwd = "{WORKSPACE}"`')
    if transport.cwd is not None:
        return transport.cwd
    try:
        return own_folder(home, "mcp", name)
    except OSError:  # there is no home, or it is not writable
        return os.sep


def process_environment(
    transport: McpStdioTransport, user: Mapping[str, str], folder: str, workspace: str
) -> dict[str, str]:
    """Return the variables of a server process that starts in `folder`. If that is in a workspace, Python is kept from
    importing modules from there.
    """
    names = PASSED_ON.union(transport.env_vars)
    safe = {"PYTHONSAFEPATH": "1"} if within(real_path(folder), real_path(workspace)) else {}
    return safe | {name: value for name, value in user.items() if name in names} | dict(transport.env)


def find_program(command: str, environment: Mapping[str, str], cwd: str) -> str:
    """Return the absolute path of `command`. Raises OSError.

    A bare name is searched only in absolute entries of PATH, so that a file in the working directory, which is an
    untrusted repository, is never started by accident.
    """
    if os.sep in command:
        return os.path.join(cwd, command)
    entries = environment.get("PATH", os.defpath).split(os.pathsep)
    found = shutil.which(command, path=os.pathsep.join(entry for entry in entries if os.path.isabs(entry)))
    if found is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), command)
    return found


async def start_server(
    runner: CommandRunner, argv: Sequence[str], env: Mapping[str, str], cwd: str
) -> ServiceProcess:
    """Start a server. Raises OSError, and ValueError for values that cannot be passed to a program."""
    if any("\0" in text for text in (*argv, cwd, *env, *env.values())):
        raise ValueError("a NUL byte")
    try:
        return await runner.open_service(argv, env, cwd)
    except LaunchError as error:
        raise OSError(error.code or errno.EAGAIN, str(error)) from error


log = logging.getLogger(__name__)

EOF_GRACE_SECONDS = 0.3
TERM_GRACE_SECONDS = 0.5
_GONE = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError)


class StdioLink(McpTransport):
    """A link over the standard streams of one process."""

    def __init__(self, name: str, process: ServiceProcess) -> None:
        super().__init__()
        self._name = name
        self._process = process

    async def receive(self, on_message: OnMessage) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(self._write)
            group.start_soon(self._drain, self._process.stderr)
            await self._read_messages(on_message)
            group.cancel_scope.cancel()

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

    async def _write(self) -> None:
        with contextlib.suppress(*_GONE):
            async for message in self._waiting:
                await self._process.stdin.send(encode(message))

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


@contextlib.asynccontextmanager
async def open_stdio(
    name: str, transport: McpStdioTransport, runtime: McpRuntime
) -> AsyncIterator[StdioLink]:
    """Start the process, and end it on exit. Raises OSError and McpFailure if it cannot start."""
    place = starting_folder(name, transport, runtime.home, runtime.cwd)
    env = process_environment(transport, runtime.environment, place, runtime.cwd)
    program = find_program(transport.command, env, place)
    process = await start_server(runtime.runner, [program, *transport.args], env, place)
    link = StdioLink(name, process)
    try:
        yield link
    finally:
        link.end_queue()
        with anyio.CancelScope(shield=True):
            await _end(process)


async def _end(process: ServiceProcess) -> None:
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
