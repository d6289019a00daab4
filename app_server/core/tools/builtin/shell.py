"""`shell`: an argument vector, run without an interpreter of ours in between."""

from __future__ import annotations

import os.path
from dataclasses import replace

from pydantic import Field

from app_server.core.model.prompt import FunctionTool, LocalShellTool, ToolSpec
from app_server.core.patch.shell_forms import ParseProblem, PatchCall, find_patch
from app_server.core.tools.arguments import ToolArguments, Words, parameters, parse_arguments
from app_server.core.tools.contract import ToolCall, ToolFailure, ToolOutput, ToolTurn
from app_server.core.tools.orchestrator import DEFAULT_TIMEOUT_MS, Command, command_answer, run_command
from app_server.core.tools.patching import Patching


class RunArguments(ToolArguments):
    """What is the same for an argument vector and a line."""

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
    """Runs a command; the road it takes is the orchestrator's."""

    parallel = False

    def __init__(self, name: str = "shell", *, provider_side: bool = False) -> None:
        self.name = name
        self._provider_side = provider_side

    def spec(self) -> ToolSpec:
        if self._provider_side:
            return LocalShellTool()
        return FunctionTool(
            name=self.name,
            description="Runs a command and returns its output and exit code.",
            parameters=parameters(ShellArguments),
        )

    async def run(self, call: ToolCall, turn: ToolTurn) -> ToolOutput:
        arguments = parse_arguments(call.arguments, ShellArguments)
        command = as_command(call.call_id, arguments.command, arguments, turn.settings.cwd)
        return await run_or_patch(replace(command, provider_shell=call.local_shell), turn)


async def run_or_patch(command: Command, turn: ToolTurn) -> ToolOutput:
    return await patched(command, turn) or await run_command(command, turn)


async def patched(command: Command, turn: ToolTurn) -> ToolOutput | None:
    """Where all that it does is to call `apply_patch`, the patch is applied by us. None: it is another command."""
    match find_patch(command.argv):
        case PatchCall(patch, workdir):
            cwd = os.path.normpath(os.path.join(command.cwd, workdir or ""))
            result = await Patching(command.call_id, patch, cwd, turn).through()
            return command_answer(result)
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
