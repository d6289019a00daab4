"""Looking at a terminal for as long as a call may take, and telling the client and the model what was seen."""

from __future__ import annotations

import anyio

from app_server.core.context.command_output import shorten
from app_server.core.context.token_estimates import estimate_tokens, within_tokens
from app_server.core.exec.command import Stream
from app_server.core.exec.output import HeadTail
from app_server.core.exec.pty import SESSION_CAP
from app_server.core.sandbox.denial import looks_denied
from app_server.core.tools.confinement import end_terminal
from app_server.core.tools.contract import ToolOutput, ToolTurn, text_output
from app_server.core.tools.output_events import OutputDeltas, decode
from app_server.core.tools.terminals import Terminal
from protocol.records import dataclass

SHORTEST_MS, LONGEST_MS = 250, 60_000
"""How long one look may take, whatever the model asks for."""
MAX_TOKENS = 10_000
"""What the model is shown of one look where it does not say."""
CHUNK_ID = 6
"""Digits of the name that each look is given."""


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen of a terminal during one call."""

    terminal: Terminal
    output: bytes
    seconds: float
    exit_code: int | None
    """None: it goes on."""

    @property
    def denied(self) -> bool:
        return (
            self.terminal.rights.confined
            and self.exit_code is not None
            and looks_denied(self.exit_code, self.output, b"")
        )


async def watch(terminal: Terminal, yield_ms: float, turn: ToolTurn) -> Look:
    """Until the command ends or the time is up; the client is told of output as it comes."""
    deltas = OutputDeltas(terminal.item.id, lambda output: turn.items.emit_under(terminal.turn_id, output))
    seen = HeadTail(SESSION_CAP)
    pty, began = terminal.pty, anyio.current_time()
    until = began + min(max(yield_ms, SHORTEST_MS), LONGEST_MS) / 1000
    while True:
        last = pty.exit_code is not None or anyio.current_time() >= until
        chunk = await pty.next(max(until - anyio.current_time(), 0))
        if chunk:
            seen.add(chunk)
            terminal.said.add(chunk)
            deltas.take(Stream.STDOUT, chunk)
        if last:
            return Look(terminal, seen.value(), anyio.current_time() - began, pty.exit_code)


async def finish(look: Look, max_tokens: float | None, turn: ToolTurn) -> ToolOutput:
    """What the model is told of one look. A command that has ended is told of, too, and forgotten."""
    if look.exit_code is not None:
        await turn.terminals.drop(look.terminal.number)
        end_terminal(look.terminal, turn)
    text = _told(look, turn.new_id()[-CHUNK_ID:], int(MAX_TOKENS if max_tokens is None else max_tokens))
    return text_output(shorten(text), success=look.exit_code in (None, 0))


def _told(look: Look, chunk_id: str, max_tokens: int) -> str:
    text = decode(look.output)
    shown = within_tokens(text, max_tokens)
    lines = [f"Chunk ID: {chunk_id}", f"Wall time: {look.seconds:.4f} seconds"]
    if look.exit_code is None:
        lines.append(f"Process running with session ID {look.terminal.number}")
    else:
        lines.append(f"Process exited with code {look.exit_code}")
    if shown != text:
        lines.append(f"Original token count: {estimate_tokens(text)}")
    return "\n".join([*lines, "Output:", shown])
