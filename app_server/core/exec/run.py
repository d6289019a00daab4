"""Runs one command to its end: with its output kept, or handed on to somebody who may be slow.

Returns once the launcher has reported the end. A cancelled caller returns after the tree is killed, within a bound.
Where the receiver of the output waits, the command does; its time limit goes on.
"""

from __future__ import annotations

import anyio

from app_server.core.exec.command import (
    TIMEOUT_EXIT_CODE,
    CommandSpec,
    ExecResult,
    OnOutput,
    Stream,
    looks_denied,
)
from app_server.core.exec.launcher_process import Confinement, LauncherProcess
from app_server.core.exec.process import KILL_SECONDS, Process, TakeOutput, start
from app_server.core.exec.streams import READ_SIZE, STREAM_CAP, HeadTail


async def run_to_end(
    launcher: LauncherProcess,
    spec: CommandSpec,
    confinement: Confinement | None,
    on_output: OnOutput,
    cap: int = STREAM_CAP,
) -> ExecResult:
    """Run `spec`, confined if it has a plan; keep `cap` bytes of each stream. Raises LaunchError or SandboxUnavailable
    if it cannot be executed.
    """
    captured, aggregated = {stream: HeadTail(cap) for stream in Stream}, HeadTail(cap)

    async def keep(stream: Stream, chunk: bytes) -> None:
        captured[stream].add(chunk)
        aggregated.add(chunk)
        on_output(stream, chunk)

    began = anyio.current_time()
    process = await start(launcher, spec, confinement, background=True, large=True)
    try:
        timed_out = await _forward_in_time(process, keep, spec.timeout_ms)
    finally:
        process.release()
    code = process.finished().exit_code
    stdout, stderr = (captured[stream].value() for stream in (Stream.STDOUT, Stream.STDERR))
    return ExecResult(
        exit_code=TIMEOUT_EXIT_CODE if timed_out else code,
        stdout=stdout,
        stderr=stderr,
        aggregated=aggregated.value(),
        duration_s=anyio.current_time() - began,
        timed_out=timed_out,
        denied=spec.sandbox is not None and not timed_out and looks_denied(code, stdout, stderr),
    )


async def _forward_in_time(process: Process, take: TakeOutput, timeout_ms: int | None) -> bool:
    """Read until the end; kill the tree at the time limit or on cancellation. Return True after a time-out."""
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
    """Hand on all output of a process, which ends in any case; return its exit code. Raises LaunchError or
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
    return TIMEOUT_EXIT_CODE if timed_out else code
