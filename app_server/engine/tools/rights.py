"""The rights of a turn's commands and patches: the sandbox plan of the policy, and the user's consent beyond it. This
module alone turns a decision of the user into a yes or a no.

The client is warned once per conversation before anything runs in a weaker sandbox than the policy promises. Terminals
with more rights than the current policy grants are ended before anything else runs. The client is also warned of
programs that the user configured to run outside of the sandbox, if commands may change them.

Input for a terminal is checked by the policy of the current turn, not of the turn that opened the terminal.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, assert_never

from app_server.engine.approvals.consent import Consent, InputSubject, Rights, rights_of
from app_server.engine.approvals.decide import POLICY_NAMES, InputVerdict, decide_input
from app_server.engine.approvals.program_trust import exposed_folders
from app_server.engine.approvals.shell.quote import join
from app_server.engine.config.config_values import Config
from app_server.engine.hooks.turn_hooks import NO_TURN_HOOKS
from app_server.engine.sandbox.plan import SandboxPlan
from app_server.engine.support.real_path import real_path, within
from app_server.engine.tools import hook_questions
from app_server.engine.tools.terminals import Terminal
from app_server.engine.tools.tool_base import ToolContext, ToolFailure
from app_server_protocol.engine.item_values import UnknownCommand
from app_server_protocol.engine.notices import WarningNotice
from app_server_protocol.engine.questions import (
    ApprovalQuestion,
    CommandApprovalQuestion,
    FileGrant,
    PatchApprovalQuestion,
    RuleAmendment,
)
from app_server_protocol.policy import ReviewDecision

NOTICE: Final = "sandbox"
"""Key under which the conversation records that the warning about the sandbox was sent."""


async def confinement(turn: ToolContext) -> SandboxPlan | None:
    """Return the sandbox plan of a command of this turn; None for full access. The writable root is the turn's
    directory, never one that the model names.
    """
    plan = writable_scope(turn)
    turn.commands.exposed_folders.update(exposed_by(turn, plan))
    if len(turn.commands.terminals):
        for terminal in await turn.commands.terminals.end_outdated(rights_of(plan)):
            terminal.tell_end()
    if plan is not None and NOTICE not in turn.commands.shown_once:
        state = await turn.commands.runner.sandbox.state()
        turn.commands.shown_once.add(NOTICE)
        if state.warning is not None:
            turn.emit(WarningNotice(message=state.warning))
    if plan is not None:
        for text in _programs_at_risk(turn, plan):
            turn.emit(WarningNotice(message=text))
    return plan


def exposed_by(turn: ToolContext, plan: SandboxPlan | None) -> Iterable[str]:
    """Return the folders in which commands under this plan, or the repository, may create files."""
    return exposed_folders(turn.settings.cwd, () if plan is None else plan.written)


def writable_scope(turn: ToolContext) -> SandboxPlan | None:
    """Return the plan for the roots of the conversation. Emits one warning for each root that cannot be granted."""
    plan = turn.plan()
    for notice in plan.notices if plan is not None else ():
        if notice not in turn.commands.shown_once:
            turn.commands.shown_once.add(notice)
            turn.emit(WarningNotice(message=notice))
    return plan


def _programs_at_risk(turn: ToolContext, plan: SandboxPlan) -> Iterator[str]:
    """Yield a warning for each configured program that commands may change. The same roots are checked only once."""
    key = f"programs in {plan.written}"
    if key in turn.commands.shown_once:
        return
    turn.commands.shown_once.add(key)
    search = turn.commands.caller.environment.get("PATH", os.defpath)
    for owner, folder, words in _configured_programs(turn.config, turn.settings.cwd):
        for word in (shutil.which(words[0], path=search) or words[0], *words[1:]):
            path = os.path.join(folder, word)
            if not os.path.isabs(path) or not os.path.isfile(path):
                continue
            real = real_path(path)
            root = next((root for root in plan.written if within(real, root)), None)
            if root is not None and not any(within(real, fence) for fence in plan.protected):
                yield (
                    f"{owner} runs {path} outside of the sandbox, and commands may change it: move it out of {root}."
                )


def _configured_programs(config: Config, cwd: str) -> Iterator[tuple[str, str, Sequence[str]]]:
    """Yield for each configured program: its owner, the folder to which its words are relative (empty if they are not),
    and the program with its arguments.
    """
    if config.notify:
        yield "`notify`", "", config.notify
    for name, server in config.mcp_servers.items():
        program = server.transport.program(cwd)
        if server.enabled and program is not None:
            yield f"The MCP server {name}", *program


OTHER_RULE = (
    "No rule is kept: the answer named another one than was proposed, `{}`. The command is approved once."
)


def policy_rights(turn: ToolContext) -> Rights:
    """Return the rights that the turn's policy grants without approval, computed from the roots that the conversation
    was given, because commands run with these. Reads the disk.
    """
    return rights_of(turn.plan())


async def has_consent(
    question: ApprovalQuestion, consent: Consent, turn: ToolContext, *, anew: bool = False
) -> bool:
    """Return whether the user approves `question`, now or by an earlier approval for the session. `anew`: only now,
    because a hook asks. Raises HookDenied if a hook answers with no.

    Callers call this only if the policy requires approval. A policy that never asks therefore ignores session
    approvals.
    """
    if not anew and turn.approvals.remembered.covers(consent):
        tool = "apply_patch" if isinstance(question, PatchApprovalQuestion) else "shell"
        turn.report_decision(tool, question.call_id, ReviewDecision.APPROVED_FOR_SESSION, by_user=True)
        return True
    if turn.hooks is not NO_TURN_HOOKS and await hook_questions.is_approved(question.call_id, question, turn):
        return True
    answer = await turn.request_approval(question.call_id, question)
    match answer.decision:
        case ReviewDecision.APPROVED:
            if isinstance(answer.also, RuleAmendment):
                await _keep_rule(answer.also, question, turn)
            return True
        case ReviewDecision.APPROVED_FOR_SESSION:
            whole_files = isinstance(answer.also, FileGrant)
            turn.approvals.remembered.remember(consent.for_its_files() if whole_files else consent)
            return True
        case ReviewDecision.DENIED | ReviewDecision.ABORT:
            return False
        case _:
            assert_never(answer.decision)


async def _keep_rule(rule: RuleAmendment, question: ApprovalQuestion, turn: ToolContext) -> None:
    """Store the rule only if its words are exactly the proposed ones. Other words still approve this one run."""
    if not isinstance(question, CommandApprovalQuestion) or question.proposed_rule is None:
        return
    problem: str | None = OTHER_RULE.format(join(question.proposed_rule))
    if rule.words == question.proposed_rule:
        problem = await turn.approvals.rules.keep(question.proposed_rule)
    if problem is not None:
        turn.emit(WarningNotice(message=problem))


REJECTED = "input rejected by user"


async def check_input(text: str, terminal: Terminal, turn: ToolContext) -> None:
    """Raise ToolFailure if `text` must not be typed into the terminal."""
    policy, approval = policy_rights(turn), turn.settings.approval_policy
    verdict = decide_input(text, approval, terminal.rights, policy, turn.settings.granular)
    match verdict:
        case InputVerdict.TYPE:
            return
        case InputVerdict.REFUSE:
            raise ToolFailure(
                f"write_stdin failed: session {terminal.number} has more rights than the policy of this turn gives, "
                f"and the approval policy is {POLICY_NAMES[approval]}; nothing was typed"
            )
        case InputVerdict.ASK:
            subject = InputSubject(text, terminal.number, terminal.item.id)
            consent = Consent(subject, run=terminal.rights, policy=policy)
            if not await has_consent(_question(text, terminal), consent, turn):
                raise ToolFailure(REJECTED)
        case _:
            assert_never(verdict)


def _question(text: str, terminal: Terminal) -> CommandApprovalQuestion:
    """Return the question, under the id of the call that opened the terminal: clients know the running command by
    it.
    """
    without = "" if terminal.rights.confined else ", which runs without the sandbox"
    return CommandApprovalQuestion(
        call_id=terminal.item.id,
        command=(text,),
        cwd=terminal.item.cwd,
        reason=f"to be typed into session {terminal.number} ({terminal.line}){without}",
        parsed=(UnknownCommand(cmd=text),),
    )
