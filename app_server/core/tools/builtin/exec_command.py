"""`exec_command`: a shell line on a terminal that may outlive the call; `write_stdin` continues it."""

from __future__ import annotations

import os.path

from pydantic import Field

from app_server.core.approvals.consent import rights_of
from app_server.core.errors import LaunchError
from app_server.core.exec.command import CommandSpec
from app_server.core.model.prompt import ToolSpec
from app_server.core.tools.arguments import ToolArguments, function_tool, parse_arguments
from app_server.core.tools.builtin.shell import apply_if_patch
from app_server.core.tools.consent import policy_rights
from app_server.core.tools.contract import ToolCall, ToolOutput, ToolTurn
from app_server.core.tools.orchestrator import Command, run_with_approval
from app_server.core.tools.terminal_polling import TerminalSnapshot, poll_terminal, report_snapshot

YIELD_MS = 10_000
"""How long a call waits if the model does not say."""


class ExecCommandArguments(ToolArguments):
    cmd: str = Field(description="A line for the shell.")
    workdir: str | None = Field(None, description="Where to run it; relative to the working directory.")
    shell: str | None = Field(None, description="The shell's path; the user's shell by default.")
    login: bool | None = Field(None, description="Whether it is a login shell; it is by default.")
    yield_time_ms: float | None = Field(
        None, ge=0, description="Milliseconds to wait for output before you are answered; 10000 by default."
    )
    max_output_tokens: float | None = Field(
        None, ge=0, description="How much of the output you want to see; 10000 by default."
    )
    with_escalated_permissions: bool | None = Field(
        None, description="Ask the user to run it outside of the sandbox; give a justification."
    )
    justification: str | None = Field(
        None, description="One sentence for the user: why it must leave the sandbox."
    )


class ExecCommandTool:
    name = "exec_command"
    parallel = False

    def spec(self) -> ToolSpec:
        return function_tool(
            self.name,
            ExecCommandArguments,
            (
                "Runs a line of shell on a terminal. If it has not ended when the time is up, it goes on, and "
                "you are given a session ID for `write_stdin`."
            ),
        )

    async def invoke(self, call: ToolCall, turn: ToolTurn) -> ToolOutput:
        arguments = parse_arguments(call.arguments, ExecCommandArguments)
        command = as_command(call.call_id, arguments, turn)
        if (output := await apply_if_patch(command, turn)) is not None:
            return output
        yield_ms = arguments.yield_time_ms

        async def execute(spec: CommandSpec) -> TerminalSnapshot:
            began, policy = turn.clock(), policy_rights(turn)
            if (surplus := await turn.commands.terminals.make_room()) is not None:
                surplus.tell_end()
            pty = await turn.commands.runner.open_session(spec)
            terminal = turn.commands.terminals.add(
                command.item(),
                turn.items,
                pty,
                began=began,
                line=arguments.cmd,
                cwd=command.cwd,
                rights=rights_of(spec.sandbox),
                policy=policy,
                clock=turn.clock,
            )
            snapshot = await poll_terminal(terminal, YIELD_MS if yield_ms is None else yield_ms)
            if snapshot.denied or pty.failure is not None:
                await turn.commands.terminals.forget(terminal.number)
            if pty.failure is not None:
                raise LaunchError(pty.failure)
            return snapshot

        snapshot = await run_with_approval(command, turn, execute)
        if snapshot.exit_code is not None:
            await turn.commands.terminals.forget(snapshot.terminal.number)
        else:
            snapshot.terminal.detach()
        return await report_snapshot(snapshot, arguments.max_output_tokens, turn)


def as_command(call_id: str, arguments: ExecCommandArguments, turn: ToolTurn) -> Command:
    shell = arguments.shell or turn.commands.shell_path
    flag = "-c" if arguments.login is False else "-lc"
    return Command(
        call_id=call_id,
        argv=(shell, flag, arguments.cmd),
        line=arguments.cmd,
        cwd=os.path.normpath(os.path.join(turn.settings.cwd, arguments.workdir or "")),
        escalated=bool(arguments.with_escalated_permissions),
        justification=arguments.justification,
        terminal=True,
        process_id=turn.commands.terminals.next_id,
    )
