"""`shell` and `shell_command`: run an argument vector directly, or a line in the user's shell, for models that write
lines.
"""

from __future__ import annotations

import os.path

from pydantic import Field

from app_server.core.model.prompt import LocalShellTool, ToolSpec
from app_server.core.patch.shell_forms import ParseProblem, PatchCall, find_patch
from app_server.core.tools.arguments import ToolArguments, Words, function_tool, parse_arguments
from app_server.core.tools.contract import ToolCall, ToolFailure, ToolOutput, ToolTurn
from app_server.core.tools.orchestrator import DEFAULT_TIMEOUT_MS, Command, command_tool_output, run_command
from app_server.core.tools.patching import PatchFlow
from protocol.structs import replace


class RunArguments(ToolArguments):
    """The arguments that `shell` and `shell_command` share."""

    workdir: str | None = Field(None, description="Where to run it; relative to the working directory.")
    timeout_ms: float | None = Field(
        None, ge=0, description="Milliseconds after which it is ended; 10000 by default."
    )
    with_escalated_permissions: bool | None = Field(
        None, description="Ask the user to run it outside of the sandbox; give a justification."
    )
    justification: str | None = Field(
        None, description="One sentence for the user: why it must leave the sandbox."
    )


class ShellArguments(RunArguments):
    command: Words = Field(
        description='The program and its arguments. For shell syntax pass ["bash", "-lc", SCRIPT].'
    )


class ShellTool:
    """Runs a command through the approval flow of `orchestrator`."""

    parallel = False

    def __init__(self, name: str = "shell", *, provider_side: bool = False) -> None:
        self.name = name
        self._provider_side = provider_side

    def spec(self) -> ToolSpec:
        if self._provider_side:
            return LocalShellTool()
        return function_tool(
            self.name, ShellArguments, "Runs a command and returns its output and exit code."
        )

    async def invoke(self, call: ToolCall, turn: ToolTurn) -> ToolOutput:
        arguments = parse_arguments(call.arguments, ShellArguments)
        command = as_command(call.call_id, arguments.command, arguments, turn.settings.cwd)
        return await run_or_patch(replace(command, provider_shell=call.local_shell), turn)


async def run_or_patch(command: Command, turn: ToolTurn) -> ToolOutput:
    return await apply_if_patch(command, turn) or await run_command(command, turn)


async def apply_if_patch(command: Command, turn: ToolTurn) -> ToolOutput | None:
    """Apply the patch in place of a command that only calls `apply_patch`. None for any other command."""
    match find_patch(command.argv):
        case PatchCall(patch, workdir):
            cwd = os.path.normpath(os.path.join(command.cwd, workdir or ""))
            result = await PatchFlow(command.call_id, patch, cwd, turn).apply()
            return command_tool_output(result)
        case ParseProblem(message):
            raise ToolFailure(message)
        case _:
            return None


def as_command(call_id: str, argv: tuple[str, ...], arguments: RunArguments, cwd: str) -> Command:
    timeout = arguments.timeout_ms
    return Command(
        call_id=call_id,
        argv=argv,
        cwd=os.path.normpath(os.path.join(cwd, arguments.workdir or "")),
        timeout_ms=DEFAULT_TIMEOUT_MS if timeout is None else int(timeout),
        escalated=bool(arguments.with_escalated_permissions),
        justification=arguments.justification,
    )


class ShellCommandArguments(RunArguments):
    command: str = Field(description="A line for the user's shell.")


class ShellCommandTool:
    name = "shell_command"
    parallel = False

    def spec(self) -> ToolSpec:
        return function_tool(
            self.name, ShellCommandArguments, "Runs a line of shell and returns its output and exit code."
        )

    async def invoke(self, call: ToolCall, turn: ToolTurn) -> ToolOutput:
        arguments = parse_arguments(call.arguments, ShellCommandArguments)
        argv = (turn.commands.shell_path, "-lc", arguments.command)
        command = as_command(call.call_id, argv, arguments, turn.settings.cwd)
        return await run_or_patch(command, turn)
