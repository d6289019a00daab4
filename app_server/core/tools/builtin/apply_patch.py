"""`apply_patch`: called as a tool, a JSON function or free text, or in the words of a command."""

from __future__ import annotations

import os.path

from app_server.core.patch.shell_forms import ParseProblem, PatchCall, find_patch
from app_server.core.tools.arguments import parse_arguments
from app_server.core.tools.contract import ToolCall, ToolFailure, ToolOutput, ToolTurn
from app_server.core.tools.orchestrator import Command, command_tool_output
from app_server.core.tools.patching import PatchFlow
from app_server.core.tools.schemas import PatchArguments


async def invoke(call: ToolCall, turn: ToolTurn) -> ToolOutput:
    """Apply a patch."""
    text = call.arguments if call.custom else parse_arguments(call.arguments, PatchArguments).input
    return command_tool_output(await PatchFlow(call.call_id, text, turn.settings.cwd, turn).apply())


async def apply_if_patch(command: Command, turn: ToolTurn) -> ToolOutput | None:
    """Apply the patch that a command is; None if it is none."""
    match find_patch(command.argv):
        case PatchCall(patch, workdir):
            cwd = os.path.normpath(os.path.join(command.cwd, workdir or ""))
            return command_tool_output(await PatchFlow(command.call_id, patch, cwd, turn).apply())
        case ParseProblem(message):
            raise ToolFailure(message)
        case _:
            return None
