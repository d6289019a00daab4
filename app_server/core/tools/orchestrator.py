"""The one road of a command: refuse | ask → sandbox → run → was it stopped? ask → run without.

1. The policy may refuse (an escalation that nobody may approve): the model is told, nothing else happens.
2. `exec_command_begin`; then, where the policy says so, the user is asked. A no ends it here.
3. The command runs in the sandbox of the turn, or without one where that is what was approved.
4. Where the sandbox stood in the way, a command that the user approved runs again without it, and one that nobody
   approved is offered to the user, if the policy lets us ask.
5. `exec_command_end`, always, with what the model is told.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from functools import partial
from typing import Protocol, TypeVar

from app_server.core.approvals.decide import CommandRequest, Verdict, decide, may_ask_after_denial, refusal
from app_server.core.approvals.repository import git_is_plain
from app_server.core.commands.parsed import parse_command
from app_server.core.context.output import command_output, command_result
from app_server.core.errors import CoreError, LaunchError, retry_hint
from app_server.core.exec.command import CommandSpec, ExecResult
from app_server.core.exec.environment import command_environment
from app_server.core.sandbox.plan import SandboxPlan
from app_server.core.tools.confinement import confinement
from app_server.core.tools.contract import ToolFailure, ToolOutput, ToolTurn, text_output
from app_server.core.tools.output_events import OutputDeltas, decode
from protocol.events.commands import (
    Duration,
    ExecApprovalRequestEvent,
    ExecCommandBeginEvent,
    ExecCommandEndEvent,
)
from protocol.policy import DangerFullAccess, ReviewDecision
from protocol.records import dataclass

DEFAULT_TIMEOUT_MS = 10_000
"""What a command may take where the model does not say; the reference's default."""

REJECTED = "exec command rejected by user"
RETRY_REASON = "command failed; retry without sandbox?"


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What the model asked to run."""

    call_id: str
    argv: tuple[str, ...]
    cwd: str
    line: str | None = None
    """What the model wrote where the shell around it was added here. Clients are shown that as the command that
    begins; a question shows the argv, for that is what a yes allows."""
    timeout_ms: int = DEFAULT_TIMEOUT_MS
    escalated: bool = False
    justification: str | None = None
    user_shell: bool = False
    """Typed by the user himself: nobody needs to be asked before it runs in the sandbox."""
    provider_shell: bool = False
    """Came as the provider's own kind of call, which clients are told of as of a user's command. It is asked about
    like any other."""


class Outcome(Protocol):
    """What came of running a command, whatever ran it."""

    @property
    def denied(self) -> bool:
        """The sandbox is the likely reason for its failure."""
        ...


Ran = TypeVar("Ran", bound=Outcome)


class Rejected(Exception):
    """The user said no."""


async def run_command(command: Command, turn: ToolTurn) -> ToolOutput:
    """Returns what the model is told. Raises ToolFailure where nothing was run."""

    async def execute(plan: SandboxPlan | None) -> ExecResult:
        return await turn.runner.run(
            command_spec(command, turn, plan), OutputDeltas(command.call_id, turn.emit).take
        )

    result = await through(command, turn, execute)
    tell_end(command.call_id, result, turn)
    return command_answer(result)


async def through(
    command: Command, turn: ToolTurn, execute: Callable[[SandboxPlan | None], Awaitable[Ran]]
) -> Ran:
    """Steps 1 to 4 around `execute`, which is given the plan to run under. Raises ToolFailure, after the command's
    end was told, where nothing was run."""
    request = CommandRequest(command.argv, command.cwd, command.escalated)
    if refused := refusal(request, turn.settings.approval_policy):
        turn.decided("shell", command.call_id, ReviewDecision.DENIED)
        raise ToolFailure(refused)
    begins = command.argv if command.line is None else (command.line,)
    turn.emit(
        ExecCommandBeginEvent(
            call_id=command.call_id,
            command=begins,
            cwd=command.cwd,
            parsed_cmd=parse_command(begins),
            is_user_shell_command=command.user_shell or command.provider_shell,
        )
    )
    began = turn.clock()
    try:
        if not command.argv:
            raise ToolFailure("command args are empty")
        if any("\0" in word for word in (*command.argv, command.cwd)):
            raise ToolFailure("execution error: a command cannot hold NUL characters")
        return await _Road(command, request, turn).through(execute)
    except (ToolFailure, CoreError, Rejected, OSError) as error:
        text = _said(error)
        turn.emit(_failed(command, text, turn.clock() - began))
        raise ToolFailure(text) from error


def command_spec(command: Command, turn: ToolTurn, plan: SandboxPlan | None) -> CommandSpec:
    """What the runner is asked: the turn's environment, less the credentials."""
    return CommandSpec(
        argv=command.argv,
        cwd=command.cwd,
        env=command_environment(
            turn.config.shell_environment_policy,
            turn.runner.environment_for_commands,
            plan=plan,
            withheld=turn.config.credential_variables(),
        ),
        timeout_ms=command.timeout_ms,
        sandbox=plan,
    )


class _Road:
    """One command on its way through steps 2 to 4."""

    def __init__(self, command: Command, request: CommandRequest, turn: ToolTurn) -> None:
        self._command, self._request, self._turn = command, request, turn
        self._key: Hashable = (command.argv, command.cwd, command.escalated)

    async def through(self, execute: Callable[[SandboxPlan | None], Awaitable[Ran]]) -> Ran:
        unconfined = isinstance(self._turn.settings.sandbox_policy, DangerFullAccess)
        if self._turn.approved.covers(self._key):
            # What was approved for the session ran without the sandbox, or would have: trying it again helps nobody.
            self._turn.decided(
                "shell", self._command.call_id, ReviewDecision.APPROVED_FOR_SESSION, by_user=True
            )
            return await execute(None)
        approved = await self._approved_now()
        if unconfined or (self._command.escalated and approved):
            return await execute(None)
        result = await execute(await confinement(self._turn))
        if not result.denied:
            return result
        if not approved:
            if not may_ask_after_denial(self._turn.settings.approval_policy):
                return result
            await self._ask(RETRY_REASON)
        return await execute(None)

    async def _approved_now(self) -> bool:
        """Step 2. False: nobody was asked, because nobody needed to be."""
        if self._command.user_shell:
            return False
        verdict = decide(
            self._request,
            self._turn.settings.approval_policy,
            self._turn.settings.sandbox_policy,
            partial(git_is_plain, self._request.cwd),
        )
        if verdict is Verdict.RUN:
            self._turn.decided("shell", self._command.call_id, ReviewDecision.APPROVED)
            return False
        await self._ask(self._command.justification)
        return True

    async def _ask(self, reason: str | None) -> None:
        command = self._command
        event = ExecApprovalRequestEvent(
            call_id=command.call_id,
            command=command.argv,
            cwd=command.cwd,
            reason=reason,
            parsed_cmd=tuple(parse_command(command.argv)),
        )
        match await self._turn.ask(command.call_id, event):
            case ReviewDecision.APPROVED:
                pass
            case ReviewDecision.APPROVED_FOR_SESSION:
                self._turn.approved.remember(self._key)
            case ReviewDecision.DENIED | ReviewDecision.ABORT:
                raise Rejected


def _said(error: ToolFailure | CoreError | Rejected | OSError) -> str:
    match error:
        case Rejected():
            return REJECTED
        case LaunchError():
            return f"execution error: {error}"
        case OSError():
            return f"execution error: {error.strerror or error}{retry_hint(error.errno)}"
        case _:
            return str(error)


def tell_end(call_id: str, result: ExecResult, turn: ToolTurn) -> None:
    """Step 5, for a command that ran."""
    aggregated = decode(result.aggregated)
    turn.emit(
        ExecCommandEndEvent(
            call_id=call_id,
            stdout=decode(result.stdout),
            stderr=decode(result.stderr),
            aggregated_output=aggregated,
            exit_code=result.exit_code,
            duration=Duration.from_seconds(result.duration_s),
            formatted_output=command_output(
                aggregated, timed_out=result.timed_out, seconds=result.duration_s
            ),
        )
    )


def command_answer(result: ExecResult) -> ToolOutput:
    """What the model is told of a command that ran."""
    output = command_output(decode(result.aggregated), timed_out=result.timed_out, seconds=result.duration_s)
    text = command_result(output, result.exit_code, result.duration_s)
    return text_output(text, success=result.exit_code == 0)


def _failed(command: Command, text: str, seconds: float) -> ExecCommandEndEvent:
    """The end of a command that was not run, or not to an end we know."""
    return ExecCommandEndEvent(
        call_id=command.call_id,
        stdout="",
        stderr=text,
        aggregated_output=text,
        exit_code=-1,
        duration=Duration.from_seconds(seconds),
        formatted_output=text,
    )
