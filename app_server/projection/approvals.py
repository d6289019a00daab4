"""Questions of the engine as requests to the client, and its answers as operations. Pure.

Whatever is not plainly a yes is a no: an error, another type, an unknown word.
"""

from __future__ import annotations

from typing import TypeGuard

from protocol.base import Json
from protocol.engine.events import EngineEvent
from protocol.events.commands import ExecApprovalRequestEvent
from protocol.events.mcp import ElicitationRequestEvent
from protocol.events.patches import ApplyPatchApprovalRequestEvent
from protocol.ids import ConversationId
from protocol.methods import APPLY_PATCH_APPROVAL, ELICITATION_REQUEST, EXEC_COMMAND_APPROVAL
from protocol.ops import ElicitationAction, ExecApprovalOp, Op, PatchApprovalOp, ResolveElicitationOp
from protocol.policy import ReviewDecision
from protocol.records import dataclass
from protocol.v1.approval import (
    ApplyPatchApprovalParams,
    ElicitationRequestParams,
    ExecCommandApprovalParams,
    parse_decision,
)

Asking = ExecApprovalRequestEvent | ApplyPatchApprovalRequestEvent | ElicitationRequestEvent


@dataclass(frozen=True, slots=True)
class Question:
    """A request to the client."""

    method: str
    params: bytes


def asks(msg: EngineEvent) -> TypeGuard[Asking]:
    return isinstance(
        msg, ExecApprovalRequestEvent | ApplyPatchApprovalRequestEvent | ElicitationRequestEvent
    )


def question(conversation_id: str, event: Asking) -> Question:
    id = ConversationId(conversation_id)
    match event:
        case ExecApprovalRequestEvent():
            command = ExecCommandApprovalParams(
                conversation_id=id,
                call_id=event.call_id,
                command=event.command,
                cwd=event.cwd,
                reason=event.reason,
                risk=event.risk,
                parsed_cmd=event.parsed_cmd,
            )
            return Question(EXEC_COMMAND_APPROVAL.method, command.to_json())
        case ApplyPatchApprovalRequestEvent():
            patch = ApplyPatchApprovalParams(
                conversation_id=id,
                call_id=event.call_id,
                file_changes=event.changes,
                reason=event.reason,
                grant_root=event.grant_root,
            )
            return Question(APPLY_PATCH_APPROVAL.method, patch.to_json())
        case ElicitationRequestEvent():
            asked = ElicitationRequestParams(
                conversation_id=id,
                server_name=event.server_name,
                request_id=event.id,
                message=event.message,
                requested_schema=event.requested_schema,
            )
            return Question(ELICITATION_REQUEST.method, asked.to_json())


def answer(turn_id: str, event: Asking, result: Json) -> Op:
    """The operation that carries the client's answer; `result` is None where it answered with an error."""
    match event:
        case ExecApprovalRequestEvent():
            return ExecApprovalOp(id=turn_id, call_id=event.call_id, decision=decision(result))
        case ApplyPatchApprovalRequestEvent():
            return PatchApprovalOp(id=turn_id, call_id=event.call_id, decision=decision(result))
        case ElicitationRequestEvent():
            action, content = _elicited(result)
            return ResolveElicitationOp(
                server_name=event.server_name, request_id=event.id, decision=action, content=content
            )


def decision(result: Json) -> ReviewDecision:
    return parse_decision(result) or ReviewDecision.DENIED


def _elicited(result: Json) -> tuple[ElicitationAction, Json]:
    match result:
        case {"action": "accept", **rest}:
            return ElicitationAction.ACCEPT, rest.get("content")
        case {"action": "cancel"}:
            return ElicitationAction.CANCEL, None
        case _:
            return ElicitationAction.DECLINE, None
