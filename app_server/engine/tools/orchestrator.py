"""The approval flow of a command: reject | approve → sandbox → run → denied? approve → run without sandbox.

1. The policy may reject the command (an escalation that nobody can approve): the model gets an error.
2. The item starts. If the policy requires it, the user is asked for approval; a denial ends the flow.
3. The command runs in the sandbox of the turn, or without one if the user approved exactly that.
4. If the sandbox denied something and the policy allows it, the user is asked to approve a second run without the
   sandbox: the first approval was for a run inside. What a permission profile hides stays hidden in every run.
5. The item always ends, with the same output that the model gets.

An approval for the session decides later requests; it never changes where a command runs.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from functools import cached_property, partial
from typing import Protocol, TypeVar

from msgspec import Struct

from app_server.engine.approvals import decide
from app_server.engine.approvals.consent import CommandSubject, Consent, rights_of
from app_server.engine.approvals.program_trust import ProgramSearch, git_is_plain
from app_server.engine.approvals.rules_text import PrefixRule
from app_server.engine.approvals.shell.summaries import parse_command
from app_server.engine.context.text_for_model import command_result
from app_server.engine.sandbox.exec.command import (
    CommandSpec,
    ExecResult,
    command_environment,
    oversized_word,
)
from app_server.engine.sandbox.plan import SandboxPlan
from app_server.engine.support.engine_errors import CoreError, LaunchError, retry_hint
from app_server.engine.support.real_path import real_path
from app_server.engine.tools.rights import confinement, exposed_by, has_consent, policy_rights
from app_server.engine.tools.tool_base import (
    NO_WORD,
    HookWord,
    ToolContext,
    ToolFailure,
    ToolOutput,
    text_output,
)
from app_server.engine.tools.tool_events import OutputDeltas, finished_command, unstarted_command
from app_server_protocol.engine.events import CommandRunning
from app_server_protocol.engine.items import CommandExecution, CommandSource
from app_server_protocol.engine.questions import CommandApprovalQuestion
from app_server_protocol.policy import AskForApproval, ReviewDecision
from app_server_protocol.values import replace

DEFAULT_TIMEOUT_MS = 10_000
"""Time limit of a command in milliseconds if the model sets none; the default of codex 0.58."""

REJECTED = "exec command rejected by user"
RETRY_REASON = "command failed; retry without sandbox?"
RULE_REASON = "a rule requires approval"
ESCALATION_REASON = "to be run without the sandbox"
"""Reason of an escalation if the model gives none: nothing else in the request shows the escalation."""
STAYS_HIDDEN = "files that the permission profile hides stay hidden"


class Command(Struct, frozen=True, kw_only=True):
    """A command as the model requested it."""

    call_id: str
    argv: tuple[str, ...]
    cwd: str
    line: str | None = None
    """The line that the model wrote, if the server added the shell. Clients see it as the command of the item; an
    approval request shows the argv, because that is what the approval covers.
    """
    timeout_ms: int = DEFAULT_TIMEOUT_MS
    escalated: bool = False
    justification: str | None = None
    source: CommandSource = CommandSource.AGENT
    """Origin of the command. A command that the user typed needs no approval to run in the sandbox. The provider's own
    kind of call, which clients see as a user's command, needs an approval like any other.
    """
    unconfined: bool = False
    """Whether the user typed it to run with their own rights: it never has a sandbox."""
    process_id: str | None = None
    """Number of the command's terminal. None if it has no terminal."""
    word: HookWord = NO_WORD

    def item(self) -> CommandExecution:
        """Return the item as it starts."""
        return CommandExecution(
            id=self.call_id,
            command=self.argv,
            cwd=self.cwd,
            parsed=tuple(parse_command(self.argv if self.line is None else (self.line,))),
            source=self.source,
            line=self.line,
            process_id=self.process_id,
        )


class Outcome(Protocol):
    """The result of a run, of any kind of command."""

    @property
    def denied(self) -> bool:
        """Whether the sandbox is the likely reason of the failure."""
        ...


Ran = TypeVar("Ran", bound=Outcome)


class Rejected(Exception):
    """The user denied the approval."""


async def run_command(command: Command, turn: ToolContext) -> ToolOutput:
    """Run the command and return the output for the model. Raises ToolFailure if nothing was run."""

    async def execute(spec: CommandSpec) -> ExecResult:
        return await turn.commands.runner.run(spec, OutputDeltas(command.call_id, turn.emit).emit_output)

    result = await run_with_approval(command, turn, execute)
    item = finished_command(command.item(), result, turn.output_limit)
    turn.items.complete(item)
    return command_tool_output(result, item.shown_output)


async def run_with_approval(
    command: Command, turn: ToolContext, execute: Callable[[CommandSpec], Awaitable[Ran]]
) -> Ran:
    """Do steps 1 to 4 of the flow. `execute` runs a spec. If nothing was run, the item ends and ToolFailure is
    raised.
    """
    # The user's rules apply to commands of the model only.
    typed = command.source is CommandSource.USER_SHELL
    restriction = None if typed else turn.approvals.rules.restriction(command.argv)
    request = decide.CommandRequest(command.argv, command.escalated, restriction)
    settings = turn.settings
    oversized = oversized_word(command.argv)
    # What cannot run is neither judged nor asked about: the user would read the whole of it for nothing.
    refused = (
        decide.policy_rejection(request, settings.approval_policy, settings.sandbox_policy, settings.granular)
        if oversized is None
        else None
    )
    if refused is not None:
        turn.report_decision("shell", command.call_id, ReviewDecision.DENIED)
        raise ToolFailure(refused)
    turn.items.start(command.item())
    began = turn.sources.clock()
    try:
        if not command.argv:
            raise ToolFailure("command args are empty")
        if oversized is not None:
            raise ToolFailure(f"execution error: {oversized}")
        if not all(map(_can_be_passed, (*command.argv, command.cwd))):
            raise ToolFailure("execution error: a command cannot hold NUL characters or broken Unicode")
        return await CommandApproval(command, request, turn).execute_approved(execute)
    except (ToolFailure, CoreError, OSError, Rejected) as error:
        text = _text_of(error)
        declined = isinstance(error, Rejected) or (isinstance(error, ToolFailure) and error.is_denial)
        turn.items.complete(
            unstarted_command(command.item(), text, turn.sources.clock() - began, declined=declined)
        )
        raise ToolFailure(text) from error


class CommandApproval:
    """Steps 2 to 4 of the flow for one command."""

    def __init__(self, command: Command, request: decide.CommandRequest, turn: ToolContext) -> None:
        self._command, self._request, self._turn = command, request, turn
        self._folder = real_path(command.cwd)
        """Real path of the directory, resolved once: the command is judged, shown, remembered and run in the same
        directory.
        """
        self._known_to_read = False
        """Whether the command runs without approval only because it is known to read only."""

    async def execute_approved(self, execute: Callable[[CommandSpec], Awaitable[Ran]]) -> Ran:
        if self._command.unconfined:
            return await self._run(execute, None)
        approved = await self._approve_first_run()
        if approved and self._command.escalated:
            return await self._run(execute, self._turn.approved_plan())
        plan = await confinement(self._turn)
        result = await self._run(execute, plan)
        if plan is None or not result.denied or not decide.may_ask_after_denial(self._approval):
            return result
        await self._request_approval(RETRY_REASON, unconfined=True)
        self._known_to_read = False
        return await self._run(execute, self._turn.approved_plan())

    async def _run(self, execute: Callable[[CommandSpec], Awaitable[Ran]], plan: SandboxPlan | None) -> Ran:
        self._turn.emit(CommandRunning(self._command.call_id))
        if plan is not None and not plan.written:
            return await execute(self._spec(plan))
        lasts, editor = self._command.source is CommandSource.TERMINAL, self._turn.commands.editor
        async with self._turn.changes.command(lasts=lasts):
            if editor is None:
                return await execute(self._spec(plan))
            if lasts:
                editor.changes.open_end()
            with editor.changes.span():
                return await execute(self._spec(plan))

    @property
    def _approval(self) -> AskForApproval:
        return self._turn.settings.approval_policy

    async def _approve_first_run(self) -> bool:
        """Do step 2 of the flow. Return False if no approval was needed. Raises Rejected."""
        command, turn = self._command, self._turn
        if command.source is CommandSource.USER_SHELL:
            return False
        request, rules = self._request, turn.approvals.rules
        must_ask = partial(
            decide.must_ask,
            request,
            self._approval,
            turn.settings.sandbox_policy,
            trusts=lambda program: self._programs.trusts(program),
            git_is_plain=partial(git_is_plain, self._folder),
        )
        asks = command.word.asks
        if asks is None and not must_ask(allowed=rules.allows):
            self._known_to_read = self._approval is AskForApproval.UNTRUSTED and not must_ask()
            turn.report_decision("shell", command.call_id, ReviewDecision.APPROVED)
            return False
        reason, proposal = command.justification, None
        leaves = decide.leaves_sandbox(request, turn.settings.sandbox_policy)
        if leaves:
            reason = reason or ESCALATION_REASON
        elif request.restriction is not None:
            reason = _rule_reason(request.restriction, reason)
        elif asks is None:
            proposal = rules.proposal(command.argv, self._programs.trusts)
        if command.word.approves:
            turn.report_decision("shell", command.call_id, ReviewDecision.APPROVED)
            return True
        if asks is not None:
            reason = f"{asks}; {reason}" if reason else asks
        await self._request_approval(reason, unconfined=leaves, proposal=proposal, anew=asks is not None)
        return True

    async def _request_approval(
        self,
        reason: str | None,
        *,
        unconfined: bool,
        proposal: tuple[str, ...] | None = None,
        anew: bool = False,
    ) -> None:
        command, policy = self._command, policy_rights(self._turn)
        wider = self._turn.approved_plan() if unconfined else None
        if wider is not None:
            reason = f"{reason}; {STAYS_HIDDEN}" if reason else STAYS_HIDDEN
        question = CommandApprovalQuestion(
            call_id=command.call_id,
            command=command.argv,
            cwd=command.cwd,
            reason=self._with_folder(reason),
            parsed=tuple(parse_command(command.argv)),
            proposed_rule=proposal,
        )
        subject = CommandSubject(command.argv, self._folder, command.escalated)
        consent = Consent(subject, run=rights_of(wider) if unconfined else policy, policy=policy)
        if not await has_consent(question, consent, self._turn, anew=anew):
            raise Rejected
        if real_path(self._folder) != self._folder:
            raise ToolFailure(
                f"{self._folder} has become a link since the command was asked about; nothing was run"
            )

    def _with_folder(self, reason: str | None) -> str | None:
        """Add the directory to which the working directory leads. The server's text comes first: the rest may be the
        model's.
        """
        if self._folder == self._command.cwd:
            return reason
        leads = f"{self._command.cwd} leads to {self._folder}"
        return f"{leads}; {reason}" if reason else leads

    @cached_property
    def _programs(self) -> ProgramSearch:
        plan = self._turn.plan()
        exposed = exposed_by(self._turn, plan)
        return ProgramSearch(self._spec(plan).env, (*exposed, *self._turn.commands.exposed_folders))

    def _spec(self, plan: SandboxPlan | None) -> CommandSpec:
        """Return the spec for the runner, with the turn's environment and without credentials."""
        command, turn = self._command, self._turn
        return CommandSpec(
            argv=command.argv,
            cwd=self._folder,
            exact_cwd=True,
            env=command_environment(
                turn.config.permissions.environment,
                turn.commands.runner.environment_for_commands(turn.commands.caller.environment),
                plan=plan,
                withheld=turn.config.credential_variables(),
                known_to_read=self._known_to_read,
            ),
            timeout_ms=command.timeout_ms,
            sandbox=plan,
        )


def _rule_reason(rule: PrefixRule, given: str | None) -> str:
    """Return a reason that names the rule. The server's text comes first: the rest is the model's."""
    why = f"a rule requires approval: {rule.justification}" if rule.justification else RULE_REASON
    return f"{why}; {given}" if given else why


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


def command_tool_output(result: ExecResult, shown: str) -> ToolOutput:
    """Return the output of a command that ran, for the model. `shown` is the printed output, cut to size."""
    text = command_result(shown, result.exit_code, result.duration_s)
    return replace(text_output(text, success=result.exit_code == 0), response=shown)
