"""Converts approval and elicitation events into client requests, and the responses into operations. Pure.

Every response that is not a valid approval is a denial: an error, a wrong type, an unknown decision.
"""

from __future__ import annotations

from typing import assert_never

from app_server.conversations.adapter import ClientQuestion
from protocol.base import Json, WireModel
from protocol.engine.events import EngineEvent
from protocol.events.commands import ExecApprovalRequestEvent
from protocol.events.mcp import ElicitationRequestEvent
from protocol.events.patches import ApplyPatchApprovalRequestEvent
from protocol.ids import ConversationId
from protocol.ops import ElicitationAction, ExecApprovalOp, Op, PatchApprovalOp, ResolveElicitationOp
from protocol.policy import ReviewDecision
from protocol.table import AnyServerRequest
from protocol.v1.approval import (
    ApplyPatchApprovalParams,
    ElicitationRequestParams,
    ExecCommandApprovalParams,
    parse_decision,
)
from protocol.v1.methods import APPLY_PATCH_APPROVAL, ELICITATION_REQUEST, EXEC_COMMAND_APPROVAL

RequestEvent = ExecApprovalRequestEvent | ApplyPatchApprovalRequestEvent | ElicitationRequestEvent


def question(conversation_id: str, turn_id: str, event: EngineEvent) -> ClientQuestion | None:
    """The client request for an event; None for other events."""
    if not isinstance(event, RequestEvent):
        return None
    row, params = _request(ConversationId(conversation_id), event)

    def to_op(result: Json) -> Op:
        return _op(turn_id, event, result)

    return ClientQuestion(row.method, params.to_json(), to_op)


def _request(id: ConversationId, event: RequestEvent) -> tuple[AnyServerRequest, WireModel]:
    match event:
        case ExecApprovalRequestEvent():
            return EXEC_COMMAND_APPROVAL, ExecCommandApprovalParams(
                conversation_id=id,
                call_id=event.call_id,
                command=event.command,
                cwd=event.cwd,
                reason=event.reason,
                risk=event.risk,
                parsed_cmd=event.parsed_cmd,
            )
        case ApplyPatchApprovalRequestEvent():
            return APPLY_PATCH_APPROVAL, ApplyPatchApprovalParams(
                conversation_id=id,
                call_id=event.call_id,
                file_changes=event.changes,
                reason=event.reason,
                grant_root=event.grant_root,
            )
        case ElicitationRequestEvent():
            return ELICITATION_REQUEST, ElicitationRequestParams(
                conversation_id=id,
                server_name=event.server_name,
                request_id=event.id,
                message=event.message,
                requested_schema=event.requested_schema,
            )
        case _:
            assert_never(event)


def _op(turn_id: str, event: RequestEvent, result: Json) -> Op:
    """The operation for the client's response; `result` is None if it responded with an error."""
    match event:
        case ExecApprovalRequestEvent():
            return ExecApprovalOp(id=turn_id, call_id=event.call_id, decision=decision(result))
        case ApplyPatchApprovalRequestEvent():
            return PatchApprovalOp(id=turn_id, call_id=event.call_id, decision=decision(result))
        case ElicitationRequestEvent():
            action, content = _parse_elicitation(result)
            return ResolveElicitationOp(
                server_name=event.server_name, request_id=event.id, decision=action, content=content
            )
        case _:
            assert_never(event)


def decision(result: Json) -> ReviewDecision:
    return parse_decision(result) or ReviewDecision.DENIED


def _parse_elicitation(result: Json) -> tuple[ElicitationAction, Json]:
    match result:
        case {"action": "accept", **rest}:
            return ElicitationAction.ACCEPT, rest.get("content")
        case {"action": "cancel"}:
            return ElicitationAction.CANCEL, None
        case _:
            return ElicitationAction.DECLINE, None
