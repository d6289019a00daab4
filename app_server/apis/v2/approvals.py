"""Questions of the engine as requests of the thread API, and the client's answers as operations. Pure.

Yes is what this API's own words say, and only what was offered: everything else is a no.
"""

from __future__ import annotations

from typing import Final, assert_never

from app_server.apis.v2.items import command_actions, command_line
from app_server.conversations.adapter import ClientQuestion
from protocol.base import Json, WireModel
from protocol.engine.events import Question, SessionEvent
from protocol.engine.items import CommandExecution, CommandSource, Item
from protocol.events.commands import ExecApprovalRequestEvent
from protocol.events.mcp import ElicitationRequestEvent
from protocol.events.patches import ApplyPatchApprovalRequestEvent
from protocol.ops import ElicitationAction, ExecApprovalOp, Op, PatchApprovalOp, ResolveElicitationOp
from protocol.policy import ReviewDecision
from protocol.table import AnyServerRequest
from protocol.v2.approval import (
    CommandExecutionApprovalKind,
    CommandExecutionRequestApprovalParams,
    FileChangeApprovalDecision,
    FileChangeRequestApprovalParams,
    parse_decision,
)
from protocol.v2.methods import TABLE
from protocol.v2.question import FormElicitation, McpServerElicitationRequestParams

COMMAND_APPROVAL: Final = TABLE.server_requests["item/commandExecution/requestApproval"]
FILE_CHANGE_APPROVAL: Final = TABLE.server_requests["item/fileChange/requestApproval"]
ELICITATION: Final = TABLE.server_requests["mcpServer/elicitation/request"]

OFFERED: Final = tuple(FileChangeApprovalDecision)
"""Rules that outlast the thread are not kept, so that none is offered."""

_DECISIONS: Final = {
    FileChangeApprovalDecision.ACCEPT: ReviewDecision.APPROVED,
    FileChangeApprovalDecision.ACCEPT_FOR_SESSION: ReviewDecision.APPROVED_FOR_SESSION,
    FileChangeApprovalDecision.DECLINE: ReviewDecision.DENIED,
    FileChangeApprovalDecision.CANCEL: ReviewDecision.ABORT,
}
_NO_FIELDS: Final[Json] = {"type": "object", "properties": {}}


def question(thread_id: str, event: SessionEvent, item: Item | None, now_ms: int) -> ClientQuestion | None:
    """What the client is asked; None for an event that asks nothing. `item` is the one that the question is about,
    under the id that the client knows."""
    asking = event.event
    if not isinstance(asking, Question):
        return None
    row, params = _request(thread_id, event.turn_id, asking, item, now_ms)

    def to_op(result: Json) -> Op:
        return _op(event.operation_id, asking, result)

    return ClientQuestion(row.method, params.to_json(), to_op)


def decision(result: Json) -> ReviewDecision:
    """Of the result that the client answered with, or None for an error. A rule in place of a plain yes was not
    offered, and saying yes to this once is not what it says."""
    parsed = parse_decision(result)
    return _DECISIONS[parsed] if isinstance(parsed, FileChangeApprovalDecision) else ReviewDecision.DENIED


def _request(
    thread_id: str, turn_id: str | None, event: Question, item: Item | None, now_ms: int
) -> tuple[AnyServerRequest, WireModel]:
    match event:
        case ExecApprovalRequestEvent():
            typed = _is_typed(event, item)
            return COMMAND_APPROVAL, CommandExecutionRequestApprovalParams.model_construct(
                kind=CommandExecutionApprovalKind.WRITE_STDIN
                if typed
                else CommandExecutionApprovalKind.COMMAND,
                thread_id=thread_id,
                turn_id=turn_id or "",
                item_id=event.call_id if item is None else item.id,
                started_at_ms=now_ms,
                reason=event.reason,
                command="".join(event.command) if typed else command_line(event.command),
                cwd=event.cwd,
                command_actions=command_actions(event.parsed_cmd, event.command, event.cwd),
                available_decisions=OFFERED,
            )
        case ApplyPatchApprovalRequestEvent():
            return FILE_CHANGE_APPROVAL, FileChangeRequestApprovalParams.model_construct(
                thread_id=thread_id,
                turn_id=turn_id or "",
                item_id=event.call_id if item is None else item.id,
                started_at_ms=now_ms,
                reason=event.reason,
                grant_root=event.grant_root,
            )
        case ElicitationRequestEvent():
            form = FormElicitation.model_construct(
                thread_id=thread_id,
                turn_id=turn_id,
                server_name=event.server_name,
                message=event.message,
                requested_schema=_NO_FIELDS if event.requested_schema is None else event.requested_schema,
            )
            return ELICITATION, McpServerElicitationRequestParams.model_construct(form)
        case _:
            assert_never(event)


def _is_typed(event: ExecApprovalRequestEvent, item: Item | None) -> bool:
    """Whether the question is about text for a command that goes on, and not about the command."""
    return (
        isinstance(item, CommandExecution)
        and item.source is CommandSource.TERMINAL
        and item.command != event.command
    )


def _op(operation_id: str, event: Question, result: Json) -> Op:
    match event:
        case ExecApprovalRequestEvent():
            return ExecApprovalOp(id=operation_id, call_id=event.call_id, decision=decision(result))
        case ApplyPatchApprovalRequestEvent():
            return PatchApprovalOp(id=operation_id, call_id=event.call_id, decision=decision(result))
        case ElicitationRequestEvent():
            action, content = _elicited(result)
            return ResolveElicitationOp(
                server_name=event.server_name, request_id=event.id, decision=action, content=content
            )
        case _:
            assert_never(event)


def _elicited(result: Json) -> tuple[ElicitationAction, Json]:
    match result:
        case {"action": "accept", **rest}:
            return ElicitationAction.ACCEPT, rest.get("content")
        case {"action": "cancel"}:
            return ElicitationAction.CANCEL, None
        case _:
            return ElicitationAction.DECLINE, None
