"""`shell_command`: a line for the user's shell, for models that write lines instead of argument vectors."""

from __future__ import annotations

from pydantic import Field

from app_server.core.model.prompt import ToolSpec
from app_server.core.tools.arguments import function_tool, parse_arguments
from app_server.core.tools.builtin.shell import RunArguments, as_command, run_or_patch
from app_server.core.tools.contract import ToolCall, ToolOutput, ToolTurn


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
