"""Conversion of engine events into notifications of the conversation API. Pure.

This API sends most items twice, as `item_*` and as legacy events, and commands, patches and MCP calls as begin and end
events. It sends no end of an item that was interrupted: `turn_aborted` or `stream_error` takes its place. Everything
that a later event depends on is in the running turn, `LiveTurn`.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from app_server.server.apis.v1 import v1_requests
from app_server.server.apis.v1.text_events import TextEvents
from app_server.server.conversations.adapter import (
    NO_FIELDS,
    ApiId,
    ConversationApi,
    ConversationStatus,
    Message,
    OutboundMessage,
    OutboundRequest,
)
from app_server.server.conversations.live_turn import LiveTurn
from app_server_protocol import event_items as wire
from app_server_protocol.engine import events, items
from app_server_protocol.engine.hook_runs import HookCompleted, HookStarted
from app_server_protocol.engine.legacy import begin_events, has_query, legacy_event, legacy_events
from app_server_protocol.engine.notices import HistoryItemRecorded, SessionClosed, TurnDiffUpdated
from app_server_protocol.engine.questions import (
    McpCallQuestion,
    Question,
    ToolCallQuestion,
    UserInputQuestion,
)
from app_server_protocol.events import command_events, messages, notice_events, tools, turn_events
from app_server_protocol.events.msg import EventMsg
from app_server_protocol.ids import ConversationId
from app_server_protocol.v1.conversation import event_method
from app_server_protocol.values import replace

AskClient = Callable[[str, events.EngineEvent], OutboundRequest | None]


TAKEN_BACK: Final = "the conversation was taken back to an earlier turn; resume it to read what is left"


class ConversationAdapter:
    """Converts the events of one conversation, with the engine's ids."""

    needs_identity = outlasts_clients = runs_tools = False

    def __init__(self, conversation_id: str) -> None:
        self._conversation_id = ConversationId(conversation_id)
        self._tail = f',"conversationId":{json.dumps(conversation_id)}}}}}'.encode()
        self._hides_shutdown = False
        self._texts = TextEvents(conversation_id, self._line)

    def messages(self, event: events.SessionEvent, live: LiveTurn, *, raw: bool) -> Sequence[Message]:
        """Return the notifications for one event; often none."""
        inner = event.event
        match inner:
            case events.ItemTextGrown(part=part):
                return self._texts.grown(event.operation_id, part, live.item)
            case events.CommandOutput():
                return self._texts.output(event.operation_id, live.item)
            case HistoryItemRecorded() if not raw:
                return ()
            case SessionClosed() if self._hides_shutdown:
                return ()
            case _:
                return [self._message(event.operation_id, msg) for msg in self.event_messages(event, live)]

    def snapshot(self, live: LiveTurn) -> Sequence[Message]:
        """Return the begin of the running turn, and of each item that goes on with its content so far as one delta."""
        return list(self._snapshot(live))

    def _snapshot(self, live: LiveTurn) -> Iterator[Message]:
        if live.began is not None:
            for msg in self.event_messages(live.began, live):
                yield self._message(live.began.operation_id, msg)
        for item in live.open_items():
            id = item.begun.operation_id
            for msg in self._started(id, item.started):
                yield self._message(id, msg)
            for part, text in item.parts.items():
                if part[0] and part[1] in item.announced:
                    yield self._message(id, messages.AgentReasoningSectionBreakEvent())
                if text.end:
                    yield from map(OutboundMessage, self._texts.delta_lines(id, item, part)(text.text()))
            if item.writing is not None:
                yield self._message(id, _patch_begin(item.writing))
            if item.output is not None:
                lines = self._texts.output_lines(id, item.started.item.id, item.output)
                yield from map(OutboundMessage, lines(0, item.output.end))

    def question(self, asking: Question, turn_id: str | None, live: LiveTurn) -> OutboundRequest | None:
        return v1_requests.question(self._conversation_id, asking)

    def question_closed(
        self, request_id: int, *, answered: bool, elsewhere: bool = False
    ) -> Sequence[OutboundMessage]:
        if not elsewhere:
            return ()
        message = notice_events.BackgroundEventEvent(message="answered by another client")
        return [OutboundMessage(self._line("", message))]

    def status_changed(self, status: ConversationStatus) -> Sequence[OutboundMessage]:
        return ()

    def on_session_replaced(self, *, continues: bool) -> None:
        self._hides_shutdown = continues

    def on_reverted(self) -> Sequence[OutboundMessage]:
        return [OutboundMessage(self._line("", notice_events.BackgroundEventEvent(message=TAKEN_BACK)))]

    def event_messages(self, event: events.SessionEvent, live: LiveTurn) -> Iterator[EventMsg]:
        """Convert an engine event into the events of this API; pieces of texts are converted by `messages`."""
        id = event.operation_id
        match event.event:
            case events.ReasoningSummaryPart():
                yield messages.AgentReasoningSectionBreakEvent()
            case events.ItemStarted() as started:
                yield from self._started(id, started)
            case events.ItemCompleted() as completed:
                yield from self._completed(id, completed, live)
            case events.PatchWriting() as writing:
                yield _patch_begin(writing)
            case events.TurnStarted(kind=events.TurnKind.REVIEW):
                pass  # sent after its `entered_review_mode`
            case events.TurnStarted(model_context_window=window):
                yield turn_events.TaskStartedEvent(model_context_window=window)
            case events.TurnEnded() as ended:
                yield from _turn_end(ended)
            case (
                events.AttemptFailed() | events.McpServersSettled() | McpCallQuestion() | HookCompleted()
            ) as told:
                yield from _told(told)
            case (
                events.ItemTextGrown()
                | events.CommandOutput()
                | events.TerminalInput()
                | events.CommandRunning()
                | events.GoalUpdated()
                | events.GoalCleared()
                | events.SettingsChanged()
                | events.ModelRerouted()
                | events.McpServerStateChanged()
                | HookStarted()
                | ToolCallQuestion()
                | UserInputQuestion()
                | TurnDiffUpdated(unified_diff="")
            ):
                pass  # this API has no events for them
            case other:
                yield legacy_event(other)

    # --- items
    def _started(self, id: str, event: events.ItemStarted) -> Iterator[EventMsg]:
        item = event.item
        if not _shows_start(event):
            return
        match item:
            case items.CommandExecution() | items.McpToolCall():
                yield from begin_events(item)
            case _:
                if (turn_item := _turn_item(item)) is not None:
                    yield turn_events.ItemStartedEvent(
                        thread_id=self._conversation_id, turn_id=id, item=turn_item
                    )

    def _completed(self, id: str, event: events.ItemCompleted, live: LiveTurn) -> Iterator[EventMsg]:
        item, begun = event.item, live.item
        if event.cut or begun is None:
            return
        unannounced = not _shows_start(begun.started)
        if unannounced and isinstance(item, items.UserMessage):
            return
        if isinstance(item, items.FileChange) and begun.writing is None:
            return
        # Without an id from the provider and without a delta, codex 0.58 gives such an item another id when it
        # completes, and this API does the same.
        renamed = begun.started.own_id and not unannounced and not begun.has_text
        shown = replace(item, id=str(uuid.uuid5(uuid.NAMESPACE_OID, item.id))) if renamed else item
        if (turn_item := _turn_item(shown)) is not None:
            thread = self._conversation_id
            if unannounced:
                yield turn_events.ItemStartedEvent(thread_id=thread, turn_id=id, item=turn_item)
            yield turn_events.ItemCompletedEvent(thread_id=thread, turn_id=id, item=turn_item)
        yield from legacy_events(item, raw_reasoning=isinstance(item, items.Reasoning) and item.show_content)
        if isinstance(item, items.EnteredReview):
            started = live.started
            window = None if started is None else started.model_context_window
            yield turn_events.TaskStartedEvent(model_context_window=window)

    # --- messages
    def _message(self, id: str, msg: EventMsg) -> OutboundMessage:
        line = self._line(id, msg)
        match msg:
            case turn_events.TokenCountEvent():
                return OutboundMessage(line, state=(self._conversation_id, msg.type))
            case command_events.TurnDiffEvent() | tools.PlanUpdateEvent():
                return OutboundMessage(line, state=(self._conversation_id, msg.type, id))
            case _:
                return OutboundMessage(line)

    def _line(self, id: str, msg: EventMsg) -> bytes:
        head = f'{{"method":{json.dumps(event_method(msg.type))},"params":{{"id":{json.dumps(id)},"msg":'
        return head.encode() + msg.to_json() + self._tail


CONVERSATIONS: Final = ConversationApi(ApiId("v1"), ConversationAdapter)


def _shows_start(event: events.ItemStarted) -> bool:
    """Return whether the start of an item is sent by itself, and not with its end or not at all."""
    return event.announced and (not isinstance(event.item, items.WebSearch) or has_query(event.item))


def _patch_begin(event: events.PatchWriting) -> command_events.PatchApplyBeginEvent:
    item = event.item
    return command_events.PatchApplyBeginEvent(
        call_id=item.id, auto_approved=not event.asked, changes=dict(item.changes)
    )


def _turn_item(item: items.Item) -> wire.TurnItem | None:
    """Return an item as one of the four kinds of this API; None if it is of another kind."""
    match item:
        case items.UserMessage():
            return {"UserMessage": wire.UserMessageItem(id=item.id, content=item.content)}
        case items.AgentMessage():
            parts = tuple({"Text": wire.TextContentPart(text=text)} for text in item.content)
            return {"AgentMessage": wire.AgentMessageItem(id=item.id, content=parts)}
        case items.Reasoning():
            shown = wire.ReasoningItem(id=item.id, summary_text=item.summary, raw_content=item.content)
            return {"Reasoning": shown}
        case items.WebSearch() if has_query(item):
            return {"WebSearch": wire.WebSearchItem(id=item.id, query=item.query)}
        case _:
            return None


def _told(
    event: events.AttemptFailed | events.McpServersSettled | McpCallQuestion | HookCompleted,
) -> Iterator[EventMsg]:
    match event:
        case HookCompleted(run=run):
            if run.problem is not None:
                yield notice_events.BackgroundEventEvent(message=run.problem)
        case events.AttemptFailed(attempt=attempt, attempts=attempts):
            yield notice_events.StreamErrorEvent(message=f"Reconnecting... {attempt}/{attempts}")
        case events.McpServersSettled(failures=failures):
            yield from (notice_events.ErrorEvent(message=message) for message in failures)
        case McpCallQuestion(call_id=id, server=server, message=message):
            yield tools.ElicitationRequestEvent(
                server_name=server, id=id, message=message, requested_schema=NO_FIELDS
            )


def _turn_end(event: events.TurnEnded) -> Iterator[EventMsg]:
    match event.status:
        case events.TurnStatus.COMPLETED:
            yield turn_events.TaskCompleteEvent(last_agent_message=event.last_agent_message)
        case events.TurnStatus.FAILED:
            assert event.error is not None
            yield notice_events.ErrorEvent(message=event.error.message)
            yield turn_events.TaskCompleteEvent(last_agent_message=None)
        case events.TurnStatus.INTERRUPTED:
            assert event.reason is not None
            yield turn_events.TurnAbortedEvent(reason=event.reason)
        case events.TurnStatus.IN_PROGRESS:
            raise AssertionError("it has ended")
