"""Runs one git command with limits for time and output, and kills its process group if it exceeds them.

This is the default `RunGit`; a caller that can run git inside the read-only sandbox passes another one.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Awaitable, Callable

import anyio
import anyio.abc

from app_server.core import remedies
from app_server.core.errors import GitError
from app_server.core.git.git_program import GitCommand
from protocol.records import dataclass

DEFAULT_TIMEOUT = 30.0
MAX_OUTPUT_BYTES = 128 * 1024 * 1024
MAX_ERROR_BYTES = 16 * 1024


@dataclass(frozen=True, slots=True)
class GitResult:
    """The exit code and the output of a command."""

    exit_code: int
    stdout: bytes
    stderr: bytes = b""


RunGit = Callable[[GitCommand, bytes], Awaitable[GitResult]]
"""Runs a command with this stdin. Raises `GitError` if it cannot run or exceeds its limits."""


async def run_git(command: GitCommand, stdin: bytes = b"", timeout: float = DEFAULT_TIMEOUT) -> GitResult:
    """The `RunGit` that starts a child process."""
    try:
        process = await anyio.open_process(
            command.argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=command.cwd,
            env=command.env,
            start_new_session=True,
        )
    except FileNotFoundError as error:
        if not os.path.isdir(command.cwd):
            raise GitError("git cannot be run: its folder does not exist") from error
        raise GitError(str(remedies.git_missing(command.env.get("PATH", "the PATH")))) from error
    except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: the system starts no more threads
        raise GitError(f"git cannot be run: {error.__class__.__name__}") from error
    try:
        with anyio.fail_after(timeout):
            return await _communicate(process, stdin)
    except TimeoutError:
        raise GitError(f"git did not end within {timeout:g} seconds") from None
    finally:
        await _end(process)


async def _communicate(process: anyio.abc.Process, stdin: bytes) -> GitResult:
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    out, err = bytearray(), bytearray()
    async with anyio.create_task_group() as group:
        group.start_soon(_feed, process.stdin, stdin)
        group.start_soon(_collect, process.stderr, err, MAX_ERROR_BYTES)
        await _collect(process.stdout, out, MAX_OUTPUT_BYTES + 1)
    code = await process.wait()
    if len(out) > MAX_OUTPUT_BYTES:
        raise GitError("git printed more than can be taken")
    return GitResult(code, bytes(out), bytes(err))


async def _feed(stream: anyio.abc.ByteSendStream, data: bytes) -> None:
    try:
        await stream.send(data)
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        pass  # The command ended without reading everything; its exit code is the reason.
    finally:
        with anyio.CancelScope(shield=True):
            await stream.aclose()


async def _collect(stream: anyio.abc.ByteReceiveStream, into: bytearray, limit: int) -> None:
    async for part in stream:
        into += part[: limit - len(into)]


async def _end(process: anyio.abc.Process) -> None:
    """Ends the process and its descendants, and closes its pipes."""
    if process.returncode is None:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
        with anyio.move_on_after(2, shield=True):
            await process.wait()
    if process.returncode is not None:
        await process.aclose()
        return
    # Nothing ends a process that hangs in the kernel, and `process.aclose` would wait for it.
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            with anyio.CancelScope(shield=True):
                await stream.aclose()
