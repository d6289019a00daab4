"""Runs the commands of hooks: by the launcher, with the rights of `hook_rights`, within bounds of time and output.

No process of a hook outlives its run: the whole tree is killed at the time limit, when its turn is interrupted, and
when the server dies.
"""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import anyio

from app_server.engine.hooks.hook_definitions import HookHandler
from app_server.engine.hooks.hook_input import input_bytes
from app_server.engine.hooks.hook_output import HookFailure, HookOutput, read_output
from app_server.engine.sandbox.exec.command import SIGNAL_EXIT_BASE, CommandSpec
from app_server.engine.sandbox.exec.command_process import Process
from app_server.engine.sandbox.exec.command_runner import CommandRunner
from app_server.engine.sandbox.plan import SandboxPlan
from app_server.engine.support.engine_errors import CoreError, InputClosed
from app_server_protocol.encoding import Json
from app_server_protocol.engine.item_values import ExecOutputStream

MAX_OUTPUT: Final = 1 << 20
"""Maximum size of the output of one run, in bytes."""

STARTUP_FILES: Final = frozenset({"BASH_ENV", "ENV"})
"""Variables that name a file which a shell reads before a command. Hooks do not get them."""

RunHandler = Callable[[HookHandler, Mapping[str, Json]], Awaitable[HookOutput | HookFailure]]
"""Runs one handler with an input: a command here, or a request to a client."""

Confine = Callable[[HookHandler], SandboxPlan | None]
"""Returns the plan for a hook; None if it runs outside of the sandbox. Reads the disk."""

EnvironmentOf = Callable[[SandboxPlan | None], Mapping[str, str]]
"""Returns the environment of a hook with a plan."""


class HookCommands:
    """Runs handlers that are commands, in one working directory."""

    def __init__(
        self, runner: CommandRunner, shell: str, cwd: str, confine: Confine, environment: EnvironmentOf
    ) -> None:
        """`shell`: path of the user's shell."""
        self._runner, self._shell, self._cwd = runner, shell, cwd
        self._confine, self._environment = confine, environment

    async def run(self, handler: HookHandler, fields: Mapping[str, Json]) -> HookOutput | HookFailure:
        plan = self._confine(handler)
        spec = CommandSpec(
            argv=shell_line(self._shell, handler.definition.command),
            cwd=self._cwd,
            env=self._environment(plan),
            sandbox=plan,
        )
        try:
            process = await self._runner.open_streamed(spec, stdin=True)
        except (CoreError, OSError) as error:
            return HookFailure(f"did not start: {error}")
        run = _Run(process)
        try:
            in_time = await run.to_end(input_bytes(fields), handler.definition.timeout)
            code = process.finished().exit_code
        except (CoreError, OSError) as error:
            return HookFailure(f"did not start: {error}")
        if run.too_long:
            return HookFailure(f"printed more than {MAX_OUTPUT >> 20} MiB")
        if not in_time:
            return HookFailure(f"did not end within {handler.definition.timeout} s (`timeout`)")
        if code > SIGNAL_EXIT_BASE and process.report is not None and process.report.code < 0:
            return HookFailure(f"was ended by signal {-process.report.code}")
        stdout, stderr = (bytes(run.output[each]).decode("utf-8", "replace") for each in ExecOutputStream)
        return read_output(handler.event, code, stdout, stderr)


_PLAIN: Final = r"(?:[\w.~@%+-]*/[\w./@%+-]*|sh|bash|python3?|node|perl|ruby)(?: +[\w./~@%+,:-]+)*"
"""A command line without anything that shells read differently: a path or an interpreter, and words."""


def shell_line(shell: str, command: str) -> tuple[str, ...]:
    """Return the argument vector that runs a hook's command: in the user's shell as codex does, since a condition of
    bash (`[[ … ]]`) is merely false in another one, and a guard with it would agree to everything. No file of the
    user's is read before it: commands of the thread may have written that. A program with plain words is the same in
    every shell, and `sh` starts faster.
    """
    if re.fullmatch(_PLAIN, command.strip()):
        return ("/bin/sh", "-c", command)
    match os.path.basename(shell):
        case "zsh":
            return (shell, "-f", "-c", command)
        case "fish":  # its language is another one
            return ("/bin/sh", "-c", command)
        case _:
            return (shell, "-c", command)


class _Run:
    """One run, from the start of its process to the end of the whole tree."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.output = {stream: bytearray() for stream in ExecOutputStream}
        self.too_long = False

    async def to_end(self, data: bytes, seconds: float) -> bool:
        """Write the input and read the output until the process ends. Return whether it ended in time."""
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._feed, data)
                with anyio.move_on_after(seconds):
                    await self._process.forward(self._take)
                group.cancel_scope.cancel()
            return self._process.report is not None
        finally:
            await self._process.end()
            self._process.release()

    async def _feed(self, data: bytes) -> None:
        assert self._process.stdin is not None
        try:
            await self._process.stdin.write(data, last=True)
        except InputClosed:
            pass  # a hook need not read its input

    async def _take(self, stream: ExecOutputStream, chunk: bytes) -> None:
        kept = self.output[stream]
        if sum(map(len, self.output.values())) + len(chunk) > MAX_OUTPUT:
            self.too_long = True
            self._process.kill()
        else:
            kept += chunk
