"""The engine's items, notices and questions in the words of codex 0.58: the events that rollouts store and that the
conversation API sends. Pure.
"""

from __future__ import annotations

from app_server_protocol.engine import items, notices, questions
from app_server_protocol.event_items import ImageInput
from app_server_protocol.events.command_events import (
    ApplyPatchApprovalRequestEvent,
    Duration,
    ExecApprovalRequestEvent,
    ExecCommandBeginEvent,
    ExecCommandEndEvent,
    PatchApplyBeginEvent,
    PatchApplyEndEvent,
    TurnDiffEvent,
    ViewImageToolCallEvent,
)
from app_server_protocol.events.messages import (
    AgentMessageEvent,
    AgentReasoningEvent,
    AgentReasoningRawContentEvent,
    UserMessageEvent,
)
from app_server_protocol.events.msg import EventMsg
from app_server_protocol.events.notice_events import (
    BackgroundEventEvent,
    DeprecationNoticeEvent,
    ErrorEvent,
    GetHistoryEntryResponseEvent,
    ListCustomPromptsResponseEvent,
    ShutdownCompleteEvent,
    UndoCompletedEvent,
    UndoStartedEvent,
    WarningEvent,
)
from app_server_protocol.events.review_events import EnteredReviewModeEvent, ExitedReviewModeEvent
from app_server_protocol.events.tools import (
    ElicitationRequestEvent,
    McpListToolsResponseEvent,
    McpToolCallBeginEvent,
    McpToolCallEndEvent,
    PlanUpdateEvent,
    WebSearchEndEvent,
)
from app_server_protocol.events.turn_events import RawResponseItemEvent, TokenCountEvent
from app_server_protocol.responses import searched_query

COMPACTED = "Compact task completed"
NOT_RUN = -1
"""Exit code of a command that was refused or could not be started."""

USERS_COMMANDS = (items.CommandSource.USER_SHELL, items.CommandSource.PROVIDER)
"""Sources of commands that have `is_user_shell_command` in the conversation API."""


def has_query(search: items.WebSearch) -> bool:
    """Return whether a search has a query; the legacy vocabulary has no event for a search without one."""
    return search.action is None or searched_query(search.action) is not None


def begin_events(item: items.Item) -> list[EventMsg]:
    """Return the legacy event of the begin of a call; none for items that are no calls, and for calls whose end says
    everything.
    """
    match item:
        case items.CommandExecution():
            return [
                ExecCommandBeginEvent(
                    call_id=item.id,
                    command=item.command if item.line is None else (item.line,),
                    cwd=item.cwd,
                    parsed_cmd=item.parsed,
                    is_user_shell_command=item.source in USERS_COMMANDS,
                )
            ]
        case items.McpToolCall():
            return [McpToolCallBeginEvent(call_id=item.id, invocation=item.invocation)]
        case items.FileChange():
            return [PatchApplyBeginEvent(call_id=item.id, auto_approved=True, changes=dict(item.changes))]
        case _:
            return []


def legacy_events(item: items.Item, *, raw_reasoning: bool) -> list[EventMsg]:  # noqa: C901 - one case for each kind
    """Return the legacy events in the order in which they follow the item's end; none if the legacy vocabulary has none
    for it.
    """
    match item:
        case items.UserMessage():
            images = [part.image_url for part in item.content if isinstance(part, ImageInput)]
            return [UserMessageEvent(message=item.text, images=tuple(images))]
        case items.AgentMessage():
            return [AgentMessageEvent(message=text) for text in item.content]
        case items.Reasoning():
            out: list[EventMsg] = [AgentReasoningEvent(text=text) for text in item.summary]
            if raw_reasoning:
                out += [AgentReasoningRawContentEvent(text=text) for text in item.content]
            return out
        case items.WebSearch() if has_query(item):
            return [WebSearchEndEvent(call_id=item.id, query=item.query)]
        case items.CommandExecution():
            return [_command_end(item)]
        case items.FileChange():
            success = item.status is items.ItemStatus.COMPLETED
            return [
                PatchApplyEndEvent(call_id=item.id, stdout=item.stdout, stderr=item.stderr, success=success)
            ]
        case items.McpToolCall():
            return [_mcp_end(item)] if item.result is not None else []
        case items.ImageView():
            return [ViewImageToolCallEvent(call_id=item.id, path=item.path)]
        case items.EnteredReview():
            return [EnteredReviewModeEvent(prompt=item.prompt, user_facing_hint=item.hint)]
        case items.ExitedReview():
            return [ExitedReviewModeEvent(review_output=item.output)]
        case items.ContextCompaction():
            return [AgentMessageEvent(message=COMPACTED)]
        case items.DynamicToolCall() | items.HookPrompt() | items.Plan() | items.WebSearch():
            return []


def _command_end(item: items.CommandExecution) -> ExecCommandEndEvent:
    return ExecCommandEndEvent(
        call_id=item.id,
        stdout=item.stdout,
        stderr=item.stderr,
        aggregated_output=item.output,
        exit_code=NOT_RUN if item.exit_code is None else item.exit_code,
        duration=Duration.from_seconds(item.seconds or 0.0),
        formatted_output=item.shown_output,
    )


def _mcp_end(item: items.McpToolCall) -> McpToolCallEndEvent:
    assert item.result is not None
    return McpToolCallEndEvent(
        call_id=item.id,
        invocation=item.invocation,
        duration=Duration.from_seconds(item.seconds or 0.0),
        result=item.result,
    )


def legacy_event(
    event: notices.Notice | questions.ApprovalQuestion | questions.ElicitationQuestion,
) -> EventMsg:
    """Return the legacy event of a notice, or the one that announces a question and that the request to the client
    follows.
    """
    match event:
        case (
            questions.CommandApprovalQuestion()
            | questions.PatchApprovalQuestion()
            | questions.ElicitationQuestion()
        ):
            return _question(event)
        case _:
            return _notice(event)


def _notice(event: notices.Notice) -> EventMsg:  # noqa: C901 - one case for each kind
    match event:
        case notices.ErrorNotice(message):
            return ErrorEvent(message=message)
        case notices.WarningNotice(message):
            return WarningEvent(message=message)
        case notices.DeprecationNotice(summary, details):
            return DeprecationNoticeEvent(summary=summary, details=details)
        case notices.ProgressNotice(message):
            return BackgroundEventEvent(message=message)
        case notices.UndoStarted(text):
            return UndoStartedEvent(message=text)
        case notices.UndoCompleted(success, text):
            return UndoCompletedEvent(success=success, message=text)
        case notices.SessionClosed():
            return ShutdownCompleteEvent()
        case notices.TokenUsageUpdated(info, rate_limits):
            return TokenCountEvent(info=info, rate_limits=rate_limits)
        case notices.PlanUpdated(explanation, plan):
            return PlanUpdateEvent(explanation=explanation, plan=plan)
        case notices.TurnDiffUpdated(diff):
            return TurnDiffEvent(unified_diff=diff)
        case notices.HistoryItemRecorded(item):
            return RawResponseItemEvent(item=item)
        case notices.HistoryEntryFound(offset, log_id, entry):
            return GetHistoryEntryResponseEvent(offset=offset, log_id=log_id, entry=entry)
        case notices.CustomPromptsListed(prompts):
            return ListCustomPromptsResponseEvent(custom_prompts=prompts)
        case notices.McpToolsListed():
            return McpListToolsResponseEvent(
                tools=dict(event.tools),
                resources=dict(event.resources),
                resource_templates=dict(event.resource_templates),
                auth_statuses=dict(event.auth_statuses),
            )


def _question(event: questions.ApprovalQuestion | questions.ElicitationQuestion) -> EventMsg:
    match event:
        case questions.CommandApprovalQuestion():
            return ExecApprovalRequestEvent(
                call_id=event.call_id,
                command=event.command,
                cwd=event.cwd,
                reason=event.reason,
                parsed_cmd=event.parsed,
            )
        case questions.PatchApprovalQuestion():
            return ApplyPatchApprovalRequestEvent(
                call_id=event.call_id, changes=dict(event.changes), reason=event.reason
            )
        case questions.ElicitationQuestion():
            return ElicitationRequestEvent(
                server_name=event.server,
                id=event.id,
                message=event.message,
                requested_schema=event.requested_schema,
            )
