"""The tools that run commands.

- `shell` and `shell_command` run an argument vector, or a line in the user's shell, until it ends.
- `exec_command` runs a line on a terminal, which may outlive the call. `write_stdin` types into that terminal later.

The last two read the terminal for as long as one call may take, and report the output to the model.
"""

from __future__ import annotations

import os.path
from collections.abc import Awaitable, Callable

import anyio
from msgspec import Struct

from app_server.engine.approvals.consent import rights_of
from app_server.engine.context.text_for_model import estimate_tokens, shorten, within_tokens
from app_server.engine.sandbox.exec.command import CommandSpec, looks_denied
from app_server.engine.sandbox.exec.pty import SESSION_CAP
from app_server.engine.sandbox.exec.streams import HeadTail
from app_server.engine.support.engine_errors import CoreError
from app_server.engine.tools import patch_tool
from app_server.engine.tools.orchestrator import Command, run_command, run_with_approval
from app_server.engine.tools.rights import check_input, confinement, policy_rights
from app_server.engine.tools.terminals import Terminal
from app_server.engine.tools.tool_base import ToolCall, ToolContext, ToolFailure, ToolOutput, text_output
from app_server.engine.tools.tool_events import decode
from app_server.engine.tools.tool_schemas import (
    ExecCommandArguments,
    RunArguments,
    ShellArguments,
    ShellCommandArguments,
    WriteStdinArguments,
    parse_arguments,
)
from app_server_protocol.engine.events import TerminalInput
from app_server_protocol.engine.items import CommandSource
from app_server_protocol.values import replace

MARKS = ("apply_patch", "applypatch", "*** Begin Patch")
"""Markers of a patch: every command that is a patch contains at least one of them."""

ApplyPatch = Callable[[Command, ToolContext], Awaitable[ToolOutput | None]]


async def invoke(call: ToolCall, turn: ToolContext) -> ToolOutput:
    """Serve a call of one of the tools of this module."""
    match call.name:
        case "exec_command":
            return await _exec_command(call, turn)
        case "write_stdin":
            return await _write_stdin(call, turn)
        case _:
            command = command_of(call, turn)
            return await _applied(command, turn) or await run_command(command, turn)


def command_of(call: ToolCall, turn: ToolContext) -> Command:
    """Return the command of a call. Raises ToolFailure for arguments that are none."""
    arguments: ShellCommandArguments | ShellArguments
    match call.name:
        case "exec_command":
            given = parse_arguments(call.arguments, ExecCommandArguments)
            option = "-c" if given.login is False else "-lc"
            argv: tuple[str, ...] = (given.shell or turn.commands.shell_path, option, given.cmd)
            return replace(_command(call, argv, given, turn), line=given.cmd, source=CommandSource.TERMINAL)
        case "shell_command":
            arguments = parse_arguments(call.arguments, ShellCommandArguments)
            argv = (turn.commands.shell_path, "-lc", arguments.command)
        case _:
            arguments = parse_arguments(call.arguments, ShellArguments)
            argv = arguments.command
    command = _command(call, argv, arguments, turn)
    if arguments.timeout_ms is not None:
        command = replace(command, timeout_ms=int(arguments.timeout_ms))
    return command


async def _applied(command: Command, turn: ToolContext) -> ToolOutput | None:
    """Apply the patch instead of running a command that only calls `apply_patch`. Return None for any other command."""
    if not any(mark in word for word in command.argv for mark in MARKS):
        return None
    return await patch_tool.apply_if_patch(command, turn)


def _command(
    call: ToolCall, argv: tuple[str, ...], arguments: RunArguments | ExecCommandArguments, turn: ToolContext
) -> Command:
    return Command(
        call_id=call.call_id,
        argv=argv,
        cwd=os.path.normpath(os.path.join(turn.settings.cwd, arguments.workdir or "")),
        escalated=bool(arguments.with_escalated_permissions),
        justification=arguments.justification,
        source=CommandSource.PROVIDER if call.local_shell else CommandSource.AGENT,
        word=call.word,
    )


SHORTEST_MS, LONGEST_MS = 250, 60_000
"""Limits of the time that one call may wait, in milliseconds."""
MAX_TOKENS = 10_000
"""Size of the part of a snapshot that the model gets if it sets no limit, in tokens."""
CHUNK_ID = 6
"""Number of digits in the id of a snapshot."""


class TerminalSnapshot(Struct, frozen=True):
    """The output of a terminal during one call, and whether it has ended."""

    terminal: Terminal
    output: bytes
    seconds: float
    exit_code: int | None
    """Exit code of the command. None if it is still running."""

    @property
    def denied(self) -> bool:
        return (
            self.terminal.rights.confined
            and self.exit_code is not None
            and looks_denied(self.exit_code, self.output, b"")
        )


async def poll_terminal(terminal: Terminal, yield_ms: float | None, usual_ms: float) -> TerminalSnapshot:
    """Read until the command ends or the wait is over. The wait is `usual_ms` if the model sets none."""
    terminal.deltas.renew()
    seen = HeadTail(SESSION_CAP)
    pty, began = terminal.pty, anyio.current_time()
    wait_ms = usual_ms if yield_ms is None else yield_ms
    until = began + min(max(wait_ms, SHORTEST_MS), LONGEST_MS) / 1000
    while True:
        last = pty.exit_code is not None or anyio.current_time() >= until
        chunk = await pty.read(max(until - anyio.current_time(), 0))
        if chunk:
            seen.add(chunk)
        if last:
            return TerminalSnapshot(terminal, seen.value(), anyio.current_time() - began, pty.exit_code)


async def report_snapshot(
    snapshot: TerminalSnapshot, max_tokens: float | None, turn: ToolContext
) -> ToolOutput:
    """Return the output for the model. If the command has ended, its item ends and the terminal is closed."""
    if snapshot.exit_code is not None:
        await turn.commands.terminals.drop(snapshot.terminal.number)
        snapshot.terminal.tell_end()
    text = render_snapshot(
        snapshot, turn.sources.new_id()[-CHUNK_ID:], int(MAX_TOKENS if max_tokens is None else max_tokens)
    )
    output = text_output(shorten(text, turn.output_limit), success=snapshot.exit_code in (None, 0))
    return replace(output, response=decode(snapshot.output))


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


YIELD_MS, LOOK_MS = 10_000, 250
"""Default wait of a call of `exec_command` and of `write_stdin`, in milliseconds, if the model sets none."""


async def _exec_command(call: ToolCall, turn: ToolContext) -> ToolOutput:
    arguments = parse_arguments(call.arguments, ExecCommandArguments)
    command = replace(command_of(call, turn), process_id=turn.commands.terminals.next_id)
    if (output := await _applied(command, turn)) is not None:
        return output

    async def execute(spec: CommandSpec) -> TerminalSnapshot:
        began, policy = turn.sources.clock(), policy_rights(turn)
        if (surplus := await turn.commands.terminals.make_room()) is not None:
            surplus.tell_end()
        pty = await turn.commands.runner.open_session(spec)
        terminal = turn.commands.terminals.add(
            command.item(),
            turn.items,
            pty,
            seconds=lambda: turn.sources.clock() - began,
            rights=rights_of(spec.sandbox),
            policy=policy,
        )
        snapshot = await poll_terminal(terminal, arguments.yield_time_ms, YIELD_MS)
        try:
            pty.check()
        except CoreError:
            await turn.commands.terminals.forget(terminal.number)
            raise
        if snapshot.denied:
            await turn.commands.terminals.forget(terminal.number)
        return snapshot

    snapshot = await run_with_approval(command, turn, execute)
    if snapshot.exit_code is not None:
        await turn.commands.terminals.forget(snapshot.terminal.number)
    else:
        snapshot.terminal.detach()
    return await report_snapshot(snapshot, arguments.max_output_tokens, turn)


async def _write_stdin(call: ToolCall, turn: ToolContext) -> ToolOutput:
    arguments = parse_arguments(call.arguments, WriteStdinArguments)
    number = arguments.session_id
    await confinement(turn)  # ends terminals with more rights than this turn's policy grants
    terminal = turn.commands.terminals.find(number)
    if terminal is None:
        raise ToolFailure(f"write_stdin failed: {turn.commands.terminals.why_missing(number)}")
    text = arguments.chars or ""
    # Input for a command that has ended has no effect, so the user is not asked about it.
    if text and not terminal.end_emitted:
        await check_input(text, terminal, turn)
        await terminal.pty.write(text.encode())
        process_id = terminal.item.process_id or ""
        turn.items.emit_under(terminal.turn_id, TerminalInput(terminal.item.id, process_id, text))
    snapshot = await poll_terminal(terminal, arguments.yield_time_ms, LOOK_MS)
    return await report_snapshot(snapshot, arguments.max_output_tokens, turn)
