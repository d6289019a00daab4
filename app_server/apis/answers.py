"""Answers of clients as commands, as far as all APIs have them in common. Pure.

Which words are a yes is for each API to say. What is no answer at all declines.
"""

from __future__ import annotations

from app_server.core.session.commands import AnswerElicitation, Decide
from protocol.engine.questions import AllowFiles, KeepRule
from protocol.events.commands import ApplyPatchApprovalRequestEvent, ExecApprovalRequestEvent
from protocol.events.tools import ElicitationRequestEvent
from protocol.policy import ElicitationAction, ReviewDecision
from protocol.structs import Json


def decide(
    event: ExecApprovalRequestEvent | ApplyPatchApprovalRequestEvent,
    decision: ReviewDecision,
    also: KeepRule | AllowFiles | None = None,
) -> Decide:
    is_patch = isinstance(event, ApplyPatchApprovalRequestEvent)
    return Decide(event.call_id, decision, also, "apply_patch" if is_patch else "shell")


def answer_elicitation(event: ElicitationRequestEvent, result: Json) -> AnswerElicitation:
    """Read an answer in the words of MCP, which all APIs use."""
    action, content = ElicitationAction.DECLINE, None
    match result:
        case {"action": "accept", **rest}:
            action, content = ElicitationAction.ACCEPT, rest.get("content")
        case {"action": "cancel"}:
            action = ElicitationAction.CANCEL
        case _:
            pass
    return AnswerElicitation(event.server_name, event.id, action, content)
