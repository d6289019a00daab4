"""`shell_command`: a line for the user's shell, for models that write lines rather than argument vectors."""

from __future__ import annotations

from typing import Final

from app_server.core.model.prompt import FunctionTool, ToolSpec
from app_server.core.tools.arguments import parse_arguments
from app_server.core.tools.builtin.shell import CHECKED as CHECKED_VECTOR
from app_server.core.tools.builtin.shell import PARAMETERS as VECTOR_PARAMETERS
from app_server.core.tools.builtin.shell import as_command, run_or_patch
from app_server.core.tools.contract import ToolCall, ToolOutput, ToolTurn
from protocol.base import Json

LINE: Final[Json] = {"type": "string", "description": "A line for the user's shell."}

PARAMETERS: Final[dict[str, Json]] = {
    **VECTOR_PARAMETERS,
    "properties": {**VECTOR_PARAMETERS["properties"], "command": LINE},
}
CHECKED: Final[dict[str, Json]] = {
    **CHECKED_VECTOR,
    "properties": {**CHECKED_VECTOR["properties"], "command": LINE},
}


class ShellCommandTool:
    name = "shell_command"
    parallel = False

    def spec(self) -> ToolSpec:
        return FunctionTool(
            name=self.name,
            description="Runs a line of shell and returns its output and exit code.",
            parameters=PARAMETERS,
        )

    async def run(self, call: ToolCall, turn: ToolTurn) -> ToolOutput:
        arguments = parse_arguments(call.arguments, CHECKED)
        vector = [turn.shell_path, "-lc", arguments["command"]]
        command = as_command(call.call_id, {**arguments, "command": vector}, turn.settings.cwd)
        return await run_or_patch(command, turn)
