"""`write_stdin`: types into a command that `exec_command` left running, or only reads its new output."""

from __future__ import annotations

from pydantic import Field

from app_server.core.model.prompt import ToolSpec
from app_server.core.tools.arguments import ToolArguments, Whole, function_tool, parse_arguments
from app_server.core.tools.confinement import confinement
from app_server.core.tools.contract import ToolCall, ToolFailure, ToolOutput, ToolTurn
from app_server.core.tools.terminal_polling import poll_terminal, report_snapshot
from app_server.core.tools.typed_input import check_input
from protocol.engine.events import TerminalInput

YIELD_MS = 250
"""How long a call waits if the model does not say."""


class WriteStdinArguments(ToolArguments):
    session_id: Whole = Field(description="The session ID that `exec_command` gave.")
    chars: str | None = Field(
        None, description="What to type, control characters as they are; nothing, to read only."
    )
    yield_time_ms: float | None = Field(
        None, ge=0, description="Milliseconds to wait for output before you are answered; 250 by default."
    )
    max_output_tokens: float | None = Field(
        None, ge=0, description="How much of the output you want to see; 10000 by default."
    )


class WriteStdinTool:
    name = "write_stdin"
    parallel = False

    def spec(self) -> ToolSpec:
        return function_tool(
            self.name, WriteStdinArguments, "Types into a running session and returns what it says."
        )

    async def invoke(self, call: ToolCall, turn: ToolTurn) -> ToolOutput:
        arguments = parse_arguments(call.arguments, WriteStdinArguments)
        number = arguments.session_id
        await confinement(turn)  # ends terminals with more rights than this turn's policy grants
        terminal = turn.commands.terminals.find(number)
        if terminal is None:
            raise ToolFailure(f"write_stdin failed: {turn.commands.terminals.why_missing(number)}")
        if text := arguments.chars or "":
            await check_input(text, terminal, turn)
            await terminal.pty.write(text.encode())
            process_id = terminal.item.process_id or ""
            turn.items.emit_under(terminal.turn_id, TerminalInput(terminal.item.id, process_id, text))
        yield_ms = arguments.yield_time_ms
        snapshot = await poll_terminal(terminal, YIELD_MS if yield_ms is None else yield_ms)
        return await report_snapshot(snapshot, arguments.max_output_tokens, turn)
