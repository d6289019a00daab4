"""`shell` and `shell_command`: run an argument vector directly, or a line in the user's shell, for models that write
lines.
"""

from __future__ import annotations

import os.path
from collections.abc import Awaitable, Callable
from importlib import import_module

from app_server.core.lazy import Lazy
from app_server.core.tools.arguments import parse_arguments
from app_server.core.tools.contract import ToolCall, ToolOutput, ToolTurn
from app_server.core.tools.orchestrator import DEFAULT_TIMEOUT_MS, Command, run_command
from app_server.core.tools.schemas import RunArguments, ShellArguments, ShellCommandArguments

MARKS = ("apply_patch", "applypatch", "*** Begin Patch")
"""One of these is in every command that is a patch."""

ApplyPatch = Callable[[Command, ToolTurn], Awaitable[ToolOutput | None]]

_APPLY: Lazy[ApplyPatch] = Lazy(
    lambda: import_module("app_server.core.tools.builtin.apply_patch").apply_if_patch
)


async def invoke(call: ToolCall, turn: ToolTurn) -> ToolOutput:
    """Run a command through the approval flow of `orchestrator`, or apply the patch that it is."""
    if call.name == "shell_command":
        line = parse_arguments(call.arguments, ShellCommandArguments)
        command = _command(call, (turn.commands.shell_path, "-lc", line.command), line, turn)
    else:
        vector = parse_arguments(call.arguments, ShellArguments)
        command = _command(call, vector.command, vector, turn)
    return await applied(command, turn) or await run_command(command, turn)


async def applied(command: Command, turn: ToolTurn) -> ToolOutput | None:
    """Apply the patch in place of a command that only calls `apply_patch`. None for any other command."""
    if not any(mark in word for word in command.argv for mark in MARKS):
        return None
    return await _APPLY.get()(command, turn)


def _command(call: ToolCall, argv: tuple[str, ...], arguments: RunArguments, turn: ToolTurn) -> Command:
    timeout = arguments.timeout_ms
    return Command(
        call_id=call.call_id,
        argv=argv,
        cwd=os.path.normpath(os.path.join(turn.settings.cwd, arguments.workdir or "")),
        timeout_ms=DEFAULT_TIMEOUT_MS if timeout is None else int(timeout),
        escalated=bool(arguments.with_escalated_permissions),
        justification=arguments.justification,
        provider_shell=call.local_shell,
    )
