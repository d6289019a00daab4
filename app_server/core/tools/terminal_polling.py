"""Reads a terminal for as long as one call may take, and reports the output to the model."""

from __future__ import annotations

import anyio

from app_server.core.context.text_for_model import estimate_tokens, shorten, within_tokens
from app_server.core.exec.output import HeadTail
from app_server.core.exec.pty import SESSION_CAP
from app_server.core.sandbox.denial import looks_denied
from app_server.core.tools.contract import ToolOutput, ToolTurn, text_output
from app_server.core.tools.output_events import decode
from app_server.core.tools.terminals import Terminal
from protocol.records import dataclass

SHORTEST_MS, LONGEST_MS = 250, 60_000
"""Limits of the time that one call may wait."""
MAX_TOKENS = 10_000
"""The part of a snapshot that the model gets if it sets no limit."""
CHUNK_ID = 6
"""Digits of the id of a snapshot."""


@dataclass(frozen=True, slots=True)
class TerminalSnapshot:
    """The output of a terminal during one call, and whether it has ended."""

    terminal: Terminal
    output: bytes
    seconds: float
    exit_code: int | None
    """None: it is still running."""

    @property
    def denied(self) -> bool:
        return (
            self.terminal.rights.confined
            and self.exit_code is not None
            and looks_denied(self.exit_code, self.output, b"")
        )


async def poll_terminal(terminal: Terminal, yield_ms: float) -> TerminalSnapshot:
    """Read until the command ends or the time is up."""
    terminal.deltas.renew()
    seen = HeadTail(SESSION_CAP)
    pty, began = terminal.pty, anyio.current_time()
    until = began + min(max(yield_ms, SHORTEST_MS), LONGEST_MS) / 1000
    while True:
        last = pty.exit_code is not None or anyio.current_time() >= until
        chunk = await pty.read_some(max(until - anyio.current_time(), 0))
        if chunk:
            seen.add(chunk)
        if last:
            return TerminalSnapshot(terminal, seen.value(), anyio.current_time() - began, pty.exit_code)


async def report_snapshot(snapshot: TerminalSnapshot, max_tokens: float | None, turn: ToolTurn) -> ToolOutput:
    """The output for the model. If the command has ended, its item ends and the terminal is closed."""
    if snapshot.exit_code is not None:
        await turn.commands.terminals.drop(snapshot.terminal.number)
        snapshot.terminal.tell_end()
    text = render_snapshot(
        snapshot, turn.new_id()[-CHUNK_ID:], int(MAX_TOKENS if max_tokens is None else max_tokens)
    )
    return text_output(shorten(text), success=snapshot.exit_code in (None, 0))


def render_snapshot(snapshot: TerminalSnapshot, chunk_id: str, max_tokens: int) -> str:
    text = decode(snapshot.output)
    shown = within_tokens(text, max_tokens)
    lines = [f"Chunk ID: {chunk_id}", f"Wall time: {snapshot.seconds:.4f} seconds"]
    if snapshot.exit_code is None:
        lines.append(f"Process running with session ID {snapshot.terminal.number}")
    else:
        lines.append(f"Process exited with code {snapshot.exit_code}")
    if shown != text:
        lines.append(f"Original token count: {estimate_tokens(text)}")
    return "\n".join([*lines, "Output:", shown])
