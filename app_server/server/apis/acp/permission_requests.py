"""Conversion of approval and question events into requests to the client, and of the client's answers into commands.
Pure.

An answer is an approval only if it chooses one of the options that were offered. Closing the dialogue ends the turn;
every other answer is a denial, after which the turn goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from app_server.engine.approvals.shell import quote
from app_server.engine.approvals.shell.shell_script import script_of
from app_server.engine.session.session_commands import BeginsNoTask, Interrupt, ResolveUserInput
from app_server.server.apis.acp.formatting import CALL_TITLE, diffs_of, fenced, one_line
from app_server.server.apis.acp.tool_call_views import ToolCallView, command_title, text_content
from app_server.server.conversations.adapter import (
    NO_FIELDS,
    OutboundRequest,
    QuestionKind,
    answer_elicitation,
    asked,
    decide,
    is_elicitation_answer,
)
from app_server_protocol.acp.tool_calls import (
    CREATE_ELICITATION,
    REQUEST_PERMISSION,
    CreateElicitationRequest,
    DiffOfCall,
    PermissionOption,
    RequestPermissionRequest,
    SessionToolCallFields,
    ToolCallContent,
    ToolCallStatus,
    ToolKind,
)
from app_server_protocol.encoding import Json
from app_server_protocol.engine.questions import (
    ApprovalQuestion,
    CommandApprovalQuestion,
    ElicitationQuestion,
    McpCallDecision,
    McpCallQuestion,
    PatchApprovalQuestion,
)
from app_server_protocol.policy import ReviewDecision

DECISIONS: Final = {
    "allow_once": ReviewDecision.APPROVED,
    "allow_for_session": ReviewDecision.APPROVED_FOR_SESSION,
    "decline": ReviewDecision.DENIED,
    "cancel": ReviewDecision.ABORT,
}
"""Decisions by the ids of their options, which hosts match. `cancel` is not offered: there is one option of each kind,
because hosts choose by the kind, and an editor ends the turn by `session/cancel`.
"""

_YES: Final = PermissionOption(option_id="allow_once", name="Yes", kind="allow_once")
_NO: Final = PermissionOption(option_id="decline", name="No, go on without it", kind="reject_once")


Permission = ApprovalQuestion | ElicitationQuestion | McpCallQuestion
"""Questions that a session can ask."""


def question(session_id: str, asking: Permission, call: ToolCallView | None) -> OutboundRequest:
    """Return the request to the client for a question. `call` is the tool call that the question is about."""
    match asking:
        case McpCallQuestion():
            return _about_tool(session_id, asking, call)
        case ElicitationQuestion():
            form, answer = _form(session_id, asking), partial(answer_elicitation, asking)
            return asked(CREATE_ELICITATION, form, answer, is_elicitation_answer, QuestionKind.INPUT)
        case CommandApprovalQuestion() | PatchApprovalQuestion():
            shown = call or _unannounced(asking)
            status = ToolCallStatus.PENDING if shown.status is ToolCallStatus.PENDING else None
            fields = shown.fields(_content(asking, shown), status)
            if asking.reason and isinstance(shown.raw_input, dict):
                fields["raw_input"] = {**shown.raw_input, "justification": asking.reason}
            what = "this command" if isinstance(asking, CommandApprovalQuestion) else "these changes"
            return _permission(session_id, fields, _options(what), partial(_decided, asking))


def _about_tool(session_id: str, event: McpCallQuestion, call: ToolCallView | None) -> OutboundRequest:
    def to_command(result: Json) -> BeginsNoTask:
        match decision(result):
            case ReviewDecision.APPROVED:
                return ResolveUserInput(event.call_id, McpCallDecision.ONCE)
            case ReviewDecision.APPROVED_FOR_SESSION:
                return ResolveUserInput(event.call_id, McpCallDecision.SESSION)
            case ReviewDecision.ABORT:
                return Interrupt()
            case _:
                return ResolveUserInput(event.call_id, McpCallDecision.DECLINED)

    shown = call or ToolCallView(
        id=event.call_id,
        title=one_line(f"{event.server}: {event.tool}", CALL_TITLE),
        kind=ToolKind.OTHER,
        raw_input={"server": event.server, "tool": event.tool, "arguments": event.arguments},
    )
    texts = [event.message, *([event.description] if event.description else [])]
    fields = shown.fields(tuple(map(text_content, texts)))
    options = _options("this tool") if event.lasting else (_YES, _NO)
    return _permission(session_id, fields, options, to_command)


def _permission(
    session_id: str,
    fields: Mapping[str, Json],
    options: tuple[PermissionOption, ...],
    to_command: Callable[[Json], BeginsNoTask],
) -> OutboundRequest:
    call = SessionToolCallFields(**fields)
    request = RequestPermissionRequest(session_id=session_id, tool_call=call, options=options)
    return asked(REQUEST_PERMISSION, request, to_command, lambda result: decision(result) is not None)


def _decided(event: ApprovalQuestion, result: Json) -> BeginsNoTask:
    return decide(event, decision(result) or ReviewDecision.DENIED)


def decision(result: Json) -> ReviewDecision | None:
    """Return the decision in a client's answer; None if it neither closes the dialogue nor chooses an option that was
    offered.
    """
    match result:
        case {"outcome": {"outcome": "selected", "optionId": str(option)}}:
            return DECISIONS.get(option)
        case {"outcome": {"outcome": "cancelled"}}:
            return ReviewDecision.ABORT
        case _:
            return None


def _content(event: ApprovalQuestion, call: ToolCallView) -> tuple[ToolCallContent, ...]:
    """Return the reason for the question, and what the user approves by a yes."""
    texts = [f"Reason: {event.reason}"] if event.reason else []
    diffs: tuple[ToolCallContent, ...] = ()
    match event:
        case CommandApprovalQuestion():
            asked = list(event.command)
            whole = script_of(asked) or quote.join(asked)
            if call.raw_input is not None and asked != call.raw_input.get("command"):
                texts.append(f"Input for the command that runs: {''.join(asked)!r}")
            elif whole != call.title:  # the title is a single line and may be cut
                texts.append(fenced(whole, "sh"))
        case PatchApprovalQuestion():
            shown = tuple(note for note in call.notes if isinstance(note, DiffOfCall))
            diffs = shown or diffs_of(event.changes, {})
    return (*map(text_content, texts), *diffs)


def _unannounced(event: ApprovalQuestion) -> ToolCallView:
    """Return a call for a question about an item that was not announced to the client."""
    if isinstance(event, CommandApprovalQuestion):
        raw = {"command": list(event.command), "cwd": event.cwd}
        title = command_title(event.command, None)
        return ToolCallView(id=event.call_id, title=title, kind=ToolKind.EXECUTE, raw_input=raw)
    return ToolCallView(id=event.call_id, title="Edit files", kind=ToolKind.EDIT)


def _options(what: str) -> tuple[PermissionOption, ...]:
    always = PermissionOption(
        option_id="allow_for_session",
        name=f"Yes, and do not ask again for {what} in this session",
        kind="allow_always",
    )
    return (_YES, always, _NO)


def _form(session_id: str, event: ElicitationQuestion) -> CreateElicitationRequest:
    schema = event.requested_schema if isinstance(event.requested_schema, dict) else NO_FIELDS
    return CreateElicitationRequest(
        session_id=session_id,
        message=f"{event.server}: {event.message}",
        requested_schema={"type": "object", **schema},
    )
