"""The engine's items, notices and questions in the words of codex 0.58: the events that rollouts store and that the
conversation API sends. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from app_server_protocol.engine import items, notices, questions
from app_server_protocol.event_items import ImageInput
from app_server_protocol.events import (
    command_events,
    messages,
    notice_events,
    review_events,
    tools,
    turn_events,
)
from app_server_protocol.responses import searched_query

if TYPE_CHECKING:
    from app_server_protocol.events.msg import EventMsg

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
                command_events.ExecCommandBeginEvent(
                    call_id=item.id,
                    command=item.command if item.line is None else (item.line,),
                    cwd=item.cwd,
                    parsed_cmd=item.parsed,
                    is_user_shell_command=item.source in USERS_COMMANDS,
                )
            ]
        case items.McpToolCall():
            return [tools.McpToolCallBeginEvent(call_id=item.id, invocation=item.invocation)]
        case items.FileChange():
            return [
                command_events.PatchApplyBeginEvent(
                    call_id=item.id, auto_approved=True, changes=dict(item.changes)
                )
            ]
        case _:
            return []


def legacy_events(item: items.Item, *, raw_reasoning: bool) -> list[EventMsg]:  # noqa: C901 - one case for each kind
    """Return the legacy events in the order in which they follow the item's end; none if the legacy vocabulary has none
    for it.
    """
    match item:
        case items.UserMessage():
            images = [part.image_url for part in item.content if isinstance(part, ImageInput)]
            return [messages.UserMessageEvent(message=item.text, images=tuple(images))]
        case items.AgentMessage():
            return [messages.AgentMessageEvent(message=text) for text in item.content]
        case items.Reasoning():
            out: list[EventMsg] = [messages.AgentReasoningEvent(text=text) for text in item.summary]
            if raw_reasoning:
                out += [messages.AgentReasoningRawContentEvent(text=text) for text in item.content]
            return out
        case items.WebSearch() if has_query(item):
            return [tools.WebSearchEndEvent(call_id=item.id, query=item.query)]
        case items.CommandExecution():
            return [_command_end(item)]
        case items.FileChange():
            success = item.status is items.ItemStatus.COMPLETED
            return [
                command_events.PatchApplyEndEvent(
                    call_id=item.id, stdout=item.stdout, stderr=item.stderr, success=success
                )
            ]
        case items.McpToolCall():
            return [_mcp_end(item)] if item.result is not None else []
        case items.ImageView():
            return [command_events.ViewImageToolCallEvent(call_id=item.id, path=item.path)]
        case items.EnteredReview():
            return [review_events.EnteredReviewModeEvent(prompt=item.prompt, user_facing_hint=item.hint)]
        case items.ExitedReview():
            return [review_events.ExitedReviewModeEvent(review_output=item.output)]
        case items.ContextCompaction():
            return [messages.AgentMessageEvent(message=COMPACTED)]
        case items.DynamicToolCall() | items.HookPrompt() | items.Plan() | items.WebSearch():
            return []


def _command_end(item: items.CommandExecution) -> command_events.ExecCommandEndEvent:
    return command_events.ExecCommandEndEvent(
        call_id=item.id,
        stdout=item.stdout,
        stderr=item.stderr,
        aggregated_output=item.output,
        exit_code=NOT_RUN if item.exit_code is None else item.exit_code,
        duration=command_events.Duration.from_seconds(item.seconds or 0.0),
        formatted_output=item.shown_output,
    )


def _mcp_end(item: items.McpToolCall) -> tools.McpToolCallEndEvent:
    assert item.result is not None
    return tools.McpToolCallEndEvent(
        call_id=item.id,
        invocation=item.invocation,
        duration=command_events.Duration.from_seconds(item.seconds or 0.0),
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
            return legacy_notice(event)


def legacy_notice(event: notices.Notice) -> EventMsg:  # noqa: C901 - one case for each kind
    """Return the legacy event of a notice."""
    match event:
        case notices.ErrorNotice(message):
            return notice_events.ErrorEvent(message=message)
        case notices.WarningNotice(message):
            return notice_events.WarningEvent(message=message)
        case notices.DeprecationNotice(summary, details):
            return notice_events.DeprecationNoticeEvent(summary=summary, details=details)
        case notices.ProgressNotice(message):
            return notice_events.BackgroundEventEvent(message=message)
        case notices.UndoStarted(text):
            return notice_events.UndoStartedEvent(message=text)
        case notices.UndoCompleted(success, text):
            return notice_events.UndoCompletedEvent(success=success, message=text)
        case notices.SessionClosed():
            return notice_events.ShutdownCompleteEvent()
        case notices.TokenUsageUpdated(info, rate_limits):
            return turn_events.TokenCountEvent(info=info, rate_limits=rate_limits)
        case notices.PlanUpdated(explanation, plan):
            return tools.PlanUpdateEvent(explanation=explanation, plan=plan)
        case notices.TurnDiffUpdated(diff):
            return command_events.TurnDiffEvent(unified_diff=diff)
        case notices.HistoryItemRecorded(item):
            return turn_events.RawResponseItemEvent(item=item)
        case notices.HistoryEntryFound(offset, log_id, entry):
            return notice_events.GetHistoryEntryResponseEvent(offset=offset, log_id=log_id, entry=entry)
        case notices.CustomPromptsListed(prompts):
            return notice_events.ListCustomPromptsResponseEvent(custom_prompts=prompts)
        case notices.McpToolsListed():
            return tools.McpListToolsResponseEvent(
                tools=dict(event.tools),
                resources=dict(event.resources),
                resource_templates=dict(event.resource_templates),
                auth_statuses=dict(event.auth_statuses),
            )


def _question(event: questions.ApprovalQuestion | questions.ElicitationQuestion) -> EventMsg:
    match event:
        case questions.CommandApprovalQuestion():
            return command_events.ExecApprovalRequestEvent(
                call_id=event.call_id,
                command=event.command,
                cwd=event.cwd,
                reason=event.reason,
                parsed_cmd=event.parsed,
            )
        case questions.PatchApprovalQuestion():
            return command_events.ApplyPatchApprovalRequestEvent(
                call_id=event.call_id, changes=dict(event.changes), reason=event.reason
            )
        case questions.ElicitationQuestion():
            return tools.ElicitationRequestEvent(
                server_name=event.server,
                id=event.id,
                message=event.message,
                requested_schema=event.requested_schema,
            )
