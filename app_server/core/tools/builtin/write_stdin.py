"""`write_stdin`: types into a command that `exec_command` left running, or only looks what it has said since."""

from __future__ import annotations

from typing import Final

from app_server.core.model.prompt import FunctionTool, ToolSpec
from app_server.core.tools.arguments import parse_arguments
from app_server.core.tools.confinement import confinement
from app_server.core.tools.contract import ToolCall, ToolFailure, ToolOutput, ToolTurn
from app_server.core.tools.typed_input import check_input
from app_server.core.tools.watching import finish, watch
from protocol.base import Json

YIELD_MS = 250
"""How long a call looks where the model does not say."""

PARAMETERS: Final[dict[str, Json]] = {
    "type": "object",
    "properties": {
        "session_id": {"type": "number", "description": "The session ID that `exec_command` gave."},
        "chars": {
            "type": "string",
            "description": "What to type, control characters as they are; nothing, to read only.",
        },
        "yield_time_ms": {
            "type": "number",
            "description": "Milliseconds to wait for output before you are answered; 250 by default.",
        },
        "max_output_tokens": {
            "type": "number",
            "description": "How much of the output you want to see; 10000 by default.",
        },
    },
    "required": ["session_id"],
    "additionalProperties": False,
}

CHECKED: Final[dict[str, Json]] = {
    "type": "object",
    "properties": {
        "session_id": {"type": "integer"},
        "chars": {"type": ["string", "null"]},
        "yield_time_ms": {"type": ["number", "null"], "minimum": 0},
        "max_output_tokens": {"type": ["number", "null"], "minimum": 0},
    },
    "required": ["session_id"],
}
"""What is accepted: models send null for what they leave out."""


class WriteStdinTool:
    name = "write_stdin"
    parallel = False

    def spec(self) -> ToolSpec:
        return FunctionTool(
            name=self.name,
            description="Types into a running session and returns what it says.",
            parameters=PARAMETERS,
        )

    async def run(self, call: ToolCall, turn: ToolTurn) -> ToolOutput:
        arguments = parse_arguments(call.arguments, CHECKED)
        number = int(arguments["session_id"])
        await confinement(turn)  # ends what must not go on under this turn's policy
        terminal = turn.terminals.find(number)
        if terminal is None:
            raise ToolFailure(f"write_stdin failed: {turn.terminals.why_missing(number)}")
        if text := arguments.get("chars") or "":
            await check_input(text, terminal, turn)
            await terminal.pty.write(text.encode("utf-8", "surrogatepass"))
        yield_ms = arguments.get("yield_time_ms")
        look = await watch(terminal, YIELD_MS if yield_ms is None else yield_ms, turn)
        return await finish(look, arguments.get("max_output_tokens"), turn)
