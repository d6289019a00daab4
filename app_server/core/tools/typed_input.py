"""Checks input for a terminal by the policy of the current turn, not of the turn that opened the terminal."""

from __future__ import annotations

from typing import assert_never

from app_server.core.approvals.consent import Consent, InputSubject
from app_server.core.approvals.decide import POLICY_NAMES, InputVerdict, decide_input
from app_server.core.tools.consent import has_consent, policy_rights
from app_server.core.tools.contract import ToolFailure, ToolTurn
from app_server.core.tools.terminals import Terminal
from protocol.events.commands import ExecApprovalRequestEvent, UnknownCommand

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
    """It has the id of the call that opened the terminal: clients know the running command by that id."""
    without = "" if terminal.rights.confined else ", which runs without the sandbox"
    return ExecApprovalRequestEvent(
        call_id=terminal.item.id,
        command=(text,),
        cwd=terminal.cwd,
        reason=f"to be typed into session {terminal.number} ({terminal.line}){without}",
        parsed_cmd=(UnknownCommand(cmd=text),),
    )
