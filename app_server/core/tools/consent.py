"""Requests the user's approval unless an earlier one covers it. Only here a decision becomes a yes or a no.

Input for a terminal is checked by the policy of the current turn, not of the turn that opened the terminal.
"""

from __future__ import annotations

from typing import assert_never

from app_server.core.approvals.consent import Consent, InputSubject, Rights, rights_of
from app_server.core.approvals.decide import POLICY_NAMES, InputVerdict, decide_input
from app_server.core.shell.quote import join
from app_server.core.tools.contract import ToolFailure, ToolTurn
from app_server.core.tools.terminals import Terminal
from protocol.engine.questions import AllowFiles, KeepRule
from protocol.events.commands import ApplyPatchApprovalRequestEvent, ExecApprovalRequestEvent, UnknownCommand
from protocol.events.notices import WarningEvent
from protocol.policy import ReviewDecision

OTHER_RULE = (
    "No rule is kept: the answer named another one than was proposed, `{}`. The command is approved once."
)

Question = ExecApprovalRequestEvent | ApplyPatchApprovalRequestEvent


def policy_rights(turn: ToolTurn) -> Rights:
    """Return the rights that the turn's policy grants without approval, by the roots that the conversation was given:
    what is compared is what a command will run with. Reads the disk.
    """
    return rights_of(
        turn.commands.runner.plan(turn.settings.sandbox_policy, turn.settings.cwd, turn.commands.roots)
    )


async def has_consent(question: Question, consent: Consent, turn: ToolTurn) -> bool:
    """Tell whether the user approves `question`, now or by an earlier approval for the session.

    Callers come here only if the policy requires approval. A policy that never asks therefore ignores session
    approvals.
    """
    if turn.approvals.remembered.covers(consent):
        tool = "apply_patch" if isinstance(question, ApplyPatchApprovalRequestEvent) else "shell"
        turn.report_decision(tool, question.call_id, ReviewDecision.APPROVED_FOR_SESSION, by_user=True)
        return True
    answer = await turn.request_approval(question.call_id, question)
    match answer.decision:
        case ReviewDecision.APPROVED:
            if isinstance(answer.also, KeepRule):
                await _keep_rule(answer.also, question, turn)
            return True
        case ReviewDecision.APPROVED_FOR_SESSION:
            whole_files = isinstance(answer.also, AllowFiles)
            turn.approvals.remembered.remember(consent.for_its_files() if whole_files else consent)
            return True
        case ReviewDecision.DENIED | ReviewDecision.ABORT:
            return False
        case _:
            assert_never(answer.decision)


async def _keep_rule(rule: KeepRule, question: Question, turn: ToolTurn) -> None:
    """Keeps it only in the very words that were proposed. Other words are a yes to this one run all the same."""
    if not isinstance(question, ExecApprovalRequestEvent) or question.proposed_rule is None:
        return
    problem: str | None = OTHER_RULE.format(join(question.proposed_rule))
    if rule.words == question.proposed_rule:
        problem = await turn.approvals.rules.keep(question.proposed_rule)
    if problem is not None:
        turn.emit(WarningEvent(message=problem))


REJECTED = "input rejected by user"


async def check_input(text: str, terminal: Terminal, turn: ToolTurn) -> None:
    """Raises ToolFailure if `text` must not be typed."""
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


def _question(text: str, terminal: Terminal) -> ExecApprovalRequestEvent:
    """Ask under the id of the call that opened the terminal: clients know the running command by it."""
    without = "" if terminal.rights.confined else ", which runs without the sandbox"
    return ExecApprovalRequestEvent(
        call_id=terminal.item.id,
        command=(text,),
        cwd=terminal.item.cwd,
        reason=f"to be typed into session {terminal.number} ({terminal.line}){without}",
        parsed_cmd=(UnknownCommand(cmd=text),),
    )
