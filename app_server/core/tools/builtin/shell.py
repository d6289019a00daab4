"""`shell`: an argument vector, run without an interpreter of ours in between."""

from __future__ import annotations

import os.path
from dataclasses import replace
from typing import Final

from app_server.core.model.prompt import FunctionTool, LocalShellTool, ToolSpec
from app_server.core.patch.shell_forms import ParseProblem, PatchCall, find_patch
from app_server.core.tools.arguments import parse_arguments
from app_server.core.tools.contract import ToolCall, ToolFailure, ToolOutput, ToolTurn
from app_server.core.tools.orchestrator import DEFAULT_TIMEOUT_MS, Command, command_answer, run_command
from app_server.core.tools.patching import Patching
from protocol.base import Json

PARAMETERS: Final[dict[str, Json]] = {
    "type": "object",
    "properties": {
        "command": {
            "type": "array",
            "items": {"type": "string"},
            "description": 'The program and its arguments. For shell syntax pass ["bash", "-lc", SCRIPT].',
        },
        "workdir": {"type": "string", "description": "Where to run it; relative to the working directory."},
        "timeout_ms": {
            "type": "number",
            "description": "Milliseconds after which it is ended; 10000 by default.",
        },
        "with_escalated_permissions": {
            "type": "boolean",
            "description": "Ask the user to run it outside of the sandbox; give a justification.",
        },
        "justification": {
            "type": "string",
            "description": "One sentence for the user: why it must leave the sandbox.",
        },
    },
    "required": ["command"],
    "additionalProperties": False,
}

CHECKED: Final[dict[str, Json]] = {
    **PARAMETERS,
    "properties": {
        **PARAMETERS["properties"],
        "timeout_ms": {"type": ["number", "null"], "minimum": 0},
        "workdir": {"type": ["string", "null"]},
        "with_escalated_permissions": {"type": ["boolean", "null"]},
        "justification": {"type": ["string", "null"]},
    },
    "additionalProperties": True,
}
"""What is accepted: models send null for what they leave out, and fields that other tools have."""


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
            parameters=PARAMETERS,
        )

    async def run(self, call: ToolCall, turn: ToolTurn) -> ToolOutput:
        arguments = parse_arguments(call.arguments, CHECKED)
        command = as_command(call.call_id, arguments, turn.settings.cwd)
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


def as_command(call_id: str, arguments: dict[str, Json], cwd: str) -> Command:
    timeout = arguments.get("timeout_ms")
    return Command(
        call_id=call_id,
        argv=tuple(arguments["command"]),
        cwd=os.path.normpath(os.path.join(cwd, arguments.get("workdir") or "")),
        timeout_ms=DEFAULT_TIMEOUT_MS if timeout is None else int(timeout),
        escalated=bool(arguments.get("with_escalated_permissions")),
        justification=arguments.get("justification"),
    )
