"""Converts approval and elicitation events into client requests, and the responses into commands. Pure.

Every response that is not a valid approval is a denial: an error, a wrong type, an unknown decision.
"""

from __future__ import annotations

from typing import assert_never

from app_server.apis.answers import answer_elicitation, decide
from app_server.conversations.adapter import ClientQuestion
from app_server.core.session.commands import Command
from protocol.engine.events import EngineEvent, UserQuestion
from protocol.events.commands import ApplyPatchApprovalRequestEvent, ExecApprovalRequestEvent
from protocol.events.tools import ElicitationRequestEvent
from protocol.ids import ConversationId
from protocol.policy import ReviewDecision
from protocol.structs import Json, Written
from protocol.table import AnyServerRequest
from protocol.v1.turn import (
    APPLY_PATCH_APPROVAL,
    ELICITATION_REQUEST,
    EXEC_COMMAND_APPROVAL,
    ApplyPatchApprovalParams,
    ElicitationRequestParams,
    ExecCommandApprovalParams,
    parse_decision,
)


def question(conversation_id: str, event: EngineEvent) -> ClientQuestion | None:
    """Return the client request for an event; None for other events."""
    if not isinstance(event, UserQuestion):
        return None
    row, params = _request(ConversationId(conversation_id), event)

    def to_command(result: Json) -> Command:
        if isinstance(event, ElicitationRequestEvent):
            return answer_elicitation(event, result)
        return decide(event, parse_decision(result) or ReviewDecision.DENIED)

    return ClientQuestion(row.method, params.to_json(), to_command)


def _request(id: ConversationId, event: UserQuestion) -> tuple[AnyServerRequest, Written]:
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
