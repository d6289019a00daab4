"""The approval flow of a command: refuse | ask → sandbox → run → was it stopped? ask → run without.

1. The policy may refuse (an escalation that nobody may approve): the model is told, nothing else happens.
2. The item starts; then, where the policy says so, the user is asked. A no ends it here.
3. The command runs in the sandbox of the turn, or without one where that is what was asked for and approved.
4. Where the sandbox stood in the way, the user is asked, if the policy lets us, whether it may run again without it:
   a yes to the first question was for a run in the sandbox.
5. The item ends, always, with what the model is told.

A yes that was given for the session answers questions; it changes nothing about where the command runs.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from functools import cached_property, partial
from typing import Protocol, TypeVar

from app_server.core.approvals.consent import EVERYTHING, CommandSubject, Consent
from app_server.core.approvals.decide import CommandRequest, Verdict, decide, may_ask_after_denial, refusal
from app_server.core.approvals.programs import ProgramSearch, exposed_folders
from app_server.core.approvals.repository import git_is_plain
from app_server.core.context.command_output import command_output, command_result
from app_server.core.errors import CoreError, LaunchError, retry_hint
from app_server.core.exec.command import CommandSpec, ExecResult
from app_server.core.exec.environment import command_environment
from app_server.core.sandbox.plan import SandboxPlan
from app_server.core.shell.parse_command import parse_command
from app_server.core.tools.confinement import confinement
from app_server.core.tools.consent import has_consent, policy_rights
from app_server.core.tools.contract import ToolFailure, ToolOutput, ToolTurn, text_output
from app_server.core.tools.output_events import OutputDeltas, decode, ended, not_run
from protocol.engine.items import CommandExecution, CommandSource
from protocol.events.commands import ExecApprovalRequestEvent
from protocol.policy import AskForApproval, ReviewDecision
from protocol.records import dataclass

DEFAULT_TIMEOUT_MS = 10_000
"""What a command may take where the model does not say; the reference's default."""

REJECTED = "exec command rejected by user"
RETRY_REASON = "command failed; retry without sandbox?"
ESCALATION_REASON = "to be run without the sandbox"
"""Said of an escalation where the model gives no reason of its own: nothing else in the question shows it."""


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
    terminal: bool = False
    """Runs on a terminal that may outlive the call."""

    def item(self) -> CommandExecution:
        """The item as it starts."""
        return CommandExecution(
            id=self.call_id,
            command=self.argv,
            cwd=self.cwd,
            parsed=tuple(parse_command(self.argv if self.line is None else (self.line,))),
            source=self._source(),
            line=self.line,
        )

    def _source(self) -> CommandSource:
        if self.user_shell:
            return CommandSource.USER_SHELL
        if self.provider_shell:
            return CommandSource.PROVIDER
        return CommandSource.TERMINAL if self.terminal else CommandSource.AGENT


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

    async def execute(spec: CommandSpec) -> ExecResult:
        return await turn.runner.run(spec, OutputDeltas(command.call_id, turn.emit).take)

    result = await run_with_approval(command, turn, execute)
    turn.items.complete(ended(command.item(), result))
    return command_answer(result)


async def run_with_approval(
    command: Command, turn: ToolTurn, execute: Callable[[CommandSpec], Awaitable[Ran]]
) -> Ran:
    """Steps 1 to 4 around `execute`, which is given what to run. Raises ToolFailure, after the item's end, where
    nothing was run."""
    request = CommandRequest(command.argv, command.cwd, command.escalated)
    if refused := refusal(request, turn.settings.approval_policy):
        turn.decided("shell", command.call_id, ReviewDecision.DENIED)
        raise ToolFailure(refused)
    turn.items.start(command.item())
    began = turn.clock()
    try:
        if not command.argv:
            raise ToolFailure("command args are empty")
        if not all(map(_can_be_passed, (*command.argv, command.cwd))):
            raise ToolFailure("execution error: a command cannot hold NUL characters or broken Unicode")
        return await CommandApproval(command, turn).run(execute)
    except (ToolFailure, CoreError, OSError, Rejected) as error:
        text = _text_of(error)
        declined = isinstance(error, Rejected)
        turn.items.complete(not_run(command.item(), text, turn.clock() - began, declined=declined))
        raise ToolFailure(text) from error


class CommandApproval:
    """Steps 2 to 4 for one command."""

    def __init__(self, command: Command, turn: ToolTurn) -> None:
        self._command, self._turn = command, turn
        self._folder = os.path.realpath(command.cwd)
        """Resolved once: what is judged, shown and remembered is where it runs."""

    async def run(self, execute: Callable[[CommandSpec], Awaitable[Ran]]) -> Ran:
        asked = await self._approved_first()
        if asked and self._command.escalated:
            return await execute(self._spec(None))
        plan = await confinement(self._turn)
        result = await execute(self._spec(plan))
        if plan is None or not result.denied or not may_ask_after_denial(self._approval):
            return result
        await self._ask(RETRY_REASON, unconfined=True)
        return await execute(self._spec(None))

    @property
    def _approval(self) -> AskForApproval:
        return self._turn.settings.approval_policy

    async def _approved_first(self) -> bool:
        """Step 2. False: nobody was asked, because nobody needed to be."""
        command, turn = self._command, self._turn
        if command.user_shell:
            return False
        verdict = decide(
            CommandRequest(command.argv, self._folder, command.escalated),
            self._approval,
            turn.settings.sandbox_policy,
            trusts=lambda program: self._programs.trusts(program),
            git_is_plain=partial(git_is_plain, self._folder),
        )
        if verdict is Verdict.RUN:
            turn.decided("shell", command.call_id, ReviewDecision.APPROVED)
            return False
        reason = (command.justification or ESCALATION_REASON) if command.escalated else command.justification
        await self._ask(reason, unconfined=command.escalated)
        return True

    async def _ask(self, reason: str | None, *, unconfined: bool) -> None:
        command, policy = self._command, policy_rights(self._turn)
        question = ExecApprovalRequestEvent(
            call_id=command.call_id,
            command=command.argv,
            cwd=command.cwd,
            reason=self._with_folder(reason),
            parsed_cmd=tuple(parse_command(command.argv)),
        )
        subject = CommandSubject(command.argv, self._folder, command.escalated)
        consent = Consent(subject, run=EVERYTHING if unconfined else policy, policy=policy)
        if not await has_consent(question, consent, self._turn):
            raise Rejected
        if os.path.realpath(self._folder) != self._folder:
            raise ToolFailure(
                f"{self._folder} has become a link since the command was asked about; nothing was run"
            )

    def _with_folder(self, reason: str | None) -> str | None:
        """Ours comes first: the reason may be the model's."""
        if self._folder == self._command.cwd:
            return reason
        leads = f"{self._command.cwd} leads to {self._folder}"
        return f"{leads}; {reason}" if reason else leads

    @cached_property
    def _programs(self) -> ProgramSearch:
        settings = self._turn.settings
        plan = self._turn.runner.plan(settings.sandbox_policy, settings.cwd, self._turn.roots)
        exposed = exposed_folders(settings.cwd, () if plan is None else plan.writable_roots)
        return ProgramSearch(self._spec(plan).env, (*exposed, *self._turn.exposed_folders))

    def _spec(self, plan: SandboxPlan | None) -> CommandSpec:
        """What the runner is asked: the turn's environment, less the credentials."""
        command, turn = self._command, self._turn
        return CommandSpec(
            argv=command.argv,
            cwd=self._folder,
            exact_cwd=True,
            env=command_environment(
                turn.config.shell_environment_policy,
                turn.runner.environment_for_commands,
                plan=plan,
                withheld=turn.config.credential_variables(),
            ),
            timeout_ms=command.timeout_ms,
            sandbox=plan,
        )


def _can_be_passed(word: str) -> bool:
    try:
        return b"\0" not in os.fsencode(word)
    except UnicodeEncodeError:  # a lone surrogate
        return False


def _text_of(error: ToolFailure | CoreError | OSError | Rejected) -> str:
    match error:
        case Rejected():
            return REJECTED
        case LaunchError():
            return f"execution error: {error}"
        case OSError():
            return f"execution error: {error.strerror or error}{retry_hint(error.errno)}"
        case _:
            return str(error)


def command_answer(result: ExecResult) -> ToolOutput:
    """What the model is told of a command that ran."""
    output = command_output(decode(result.aggregated), timed_out=result.timed_out, seconds=result.duration_s)
    text = command_result(output, result.exit_code, result.duration_s)
    return text_output(text, success=result.exit_code == 0)
