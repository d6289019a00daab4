"""Converts approval and elicitation events into client requests, and the responses into commands. Pure.

Every response that is not a valid approval is a denial: an error, a wrong type, an unknown decision.
"""

from __future__ import annotations

from functools import partial

from app_server.engine.session.session_commands import BeginsNoTask, ResolveUserInput
from app_server.server.conversations.adapter import (
    NO_FIELDS,
    OutboundRequest,
    answer_elicitation,
    asked,
    decide,
    decide_call,
    is_elicitation_answer,
)
from app_server_protocol.encoding import Json
from app_server_protocol.engine.questions import (
    ApprovalQuestion,
    CommandApprovalQuestion,
    ElicitationQuestion,
    McpCallQuestion,
    PatchApprovalQuestion,
    Question,
    ToolCallQuestion,
    UserInputQuestion,
)
from app_server_protocol.ids import ConversationId
from app_server_protocol.policy import ReviewDecision
from app_server_protocol.v1 import approval as wire


def question(conversation_id: str, event: Question) -> OutboundRequest | None:
    """Return the request to the client for a question; None for questions that this API cannot ask."""
    id = ConversationId(conversation_id)
    match event:
        case CommandApprovalQuestion():
            command = wire.ExecCommandApprovalParams(
                conversation_id=id,
                call_id=event.call_id,
                command=event.command,
                cwd=event.cwd,
                reason=event.reason,
                parsed_cmd=event.parsed,
            )
            return asked(wire.EXEC_COMMAND_APPROVAL, command, partial(_decided, event), _is_decision)
        case PatchApprovalQuestion():
            patch = wire.ApplyPatchApprovalParams(
                conversation_id=id,
                call_id=event.call_id,
                file_changes=dict(event.changes),
                reason=event.reason,
            )
            return asked(wire.APPLY_PATCH_APPROVAL, patch, partial(_decided, event), _is_decision)
        case ElicitationQuestion():
            form = wire.ElicitationRequestParams(
                conversation_id=id,
                server_name=event.server,
                request_id=event.id,
                message=event.message,
                requested_schema=event.requested_schema,
            )
            answer = partial(answer_elicitation, event)
            return asked(wire.ELICITATION_REQUEST, form, answer, is_elicitation_answer)
        case McpCallQuestion():
            form = wire.ElicitationRequestParams(
                conversation_id=id,
                server_name=event.server,
                request_id=event.call_id,
                message=event.message,
                requested_schema=NO_FIELDS,
            )
            return asked(
                wire.ELICITATION_REQUEST,
                form,
                lambda result: ResolveUserInput(event.call_id, decide_call(result)),
                is_elicitation_answer,
                needs_elicitation=True,
            )
        case ToolCallQuestion() | UserInputQuestion():
            return None


def _decided(event: ApprovalQuestion, result: Json) -> BeginsNoTask:
    return decide(event, wire.parse_decision(result) or ReviewDecision.DENIED)


def _is_decision(result: Json) -> bool:
    return wire.parse_decision(result) is not None
