"""Answers of clients as operations, as far as all APIs have them in common. Pure.

Which words are a yes is for each API to say. What is no answer at all declines.
"""

from __future__ import annotations

from protocol.base import Json
from protocol.events.commands import ApplyPatchApprovalRequestEvent, ExecApprovalRequestEvent
from protocol.events.tools import ElicitationRequestEvent
from protocol.ops import ElicitationAction, ExecApprovalOp, PatchApprovalOp, ResolveElicitationOp
from protocol.policy import ReviewDecision


def approval_op(
    operation_id: str,
    event: ExecApprovalRequestEvent | ApplyPatchApprovalRequestEvent,
    decision: ReviewDecision,
) -> ExecApprovalOp | PatchApprovalOp:
    kind = ExecApprovalOp if isinstance(event, ExecApprovalRequestEvent) else PatchApprovalOp
    return kind(id=operation_id, call_id=event.call_id, decision=decision)


def elicitation_op(event: ElicitationRequestEvent, result: Json) -> ResolveElicitationOp:
    """Both APIs answer in the words of MCP."""
    action, content = ElicitationAction.DECLINE, None
    match result:
        case {"action": "accept", **rest}:
            action, content = ElicitationAction.ACCEPT, rest.get("content")
        case {"action": "cancel"}:
            action = ElicitationAction.CANCEL
        case _:
            pass
    return ResolveElicitationOp(
        server_name=event.server_name, request_id=event.id, decision=action, content=content
    )
