"""Asking the user, where no earlier yes answers: the one place in which a decision becomes a yes or a no."""

from __future__ import annotations

from typing import assert_never

from app_server.core.approvals.consent import Consent, Rights, rights_of
from app_server.core.tools.contract import ToolTurn
from protocol.events.commands import ExecApprovalRequestEvent
from protocol.events.patches import ApplyPatchApprovalRequestEvent
from protocol.policy import ReviewDecision

Question = ExecApprovalRequestEvent | ApplyPatchApprovalRequestEvent


def policy_rights(turn: ToolTurn) -> Rights:
    """What the turn's policy gives by itself, by the roots that the conversation was given: what is compared is what a
    command will run with. Reads the disk.
    """
    return rights_of(turn.runner.plan(turn.settings.sandbox_policy, turn.settings.cwd, turn.roots))


async def has_consent(question: Question, consent: Consent, turn: ToolTurn) -> bool:
    """Whether the user says yes to `question`, or has said so for the session to one that covers it.

    Only who needs a question answered comes here, so under a policy that asks nobody nothing remembered counts.
    """
    if turn.approved.covers(consent):
        tool = "apply_patch" if isinstance(question, ApplyPatchApprovalRequestEvent) else "shell"
        turn.decided(tool, question.call_id, ReviewDecision.APPROVED_FOR_SESSION, by_user=True)
        return True
    decision = await turn.ask(question.call_id, question)
    match decision:
        case ReviewDecision.APPROVED:
            return True
        case ReviewDecision.APPROVED_FOR_SESSION:
            turn.approved.remember(consent)
            return True
        case ReviewDecision.DENIED | ReviewDecision.ABORT:
            return False
        case _:
            assert_never(decision)
