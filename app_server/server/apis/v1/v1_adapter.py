"""Conversion of engine events into notifications of the conversation API. Pure.

This API sends most items twice, as `item_*` and as legacy events, and commands, patches and MCP calls as begin and end
events. It sends no end of an item that was interrupted: `turn_aborted` or `stream_error` takes its place. The lines of
a streamed text differ only in the text, so the rest of the line is made once.
"""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Final

from app_server.engine.storage.turn_fold import ItemIds
from app_server.engine.support.lazy import Lazy
from app_server.server.conversations.adapter import (
    NO_FIELDS,
    ApiId,
    ConversationApi,
    ConversationStatus,
    OutboundMessage,
    OutboundRequest,
)
from app_server.server.rpc.backlog import DeltaStream
from app_server_protocol import event_items as wire
from app_server_protocol.encoding import json_bytes
from app_server_protocol.engine import events, items
from app_server_protocol.engine.legacy import begin_events, has_query, legacy_event, legacy_events
from app_server_protocol.engine.notices import HistoryItemRecorded, SessionClosed, TurnDiffUpdated
from app_server_protocol.engine.questions import McpCallQuestion, ToolCallQuestion, UserInputQuestion
from app_server_protocol.events import command_events, messages, notice_events, tools, turn_events
from app_server_protocol.events.msg import EventMsg
from app_server_protocol.ids import ConversationId
from app_server_protocol.v1.conversation import event_method
from app_server_protocol.values import replace

DELTAS: Final = {
    events.AgentMessageDelta: (messages.AgentMessageContentDeltaEvent, messages.AgentMessageDeltaEvent),
    events.ReasoningSummaryDelta: (messages.ReasoningContentDeltaEvent, messages.AgentReasoningDeltaEvent),
    events.ReasoningTextDelta: (
        messages.ReasoningRawContentDeltaEvent,
        messages.AgentReasoningRawContentDeltaEvent,
    ),
}
"""Events of each delta: the one that names its item, and the legacy one."""

AskClient = Callable[[str, events.EngineEvent], OutboundRequest | None]

_QUESTION: Final[Lazy[AskClient]] = Lazy(
    lambda: import_module("app_server.server.apis.v1.v1_requests").question
)
"""Function that makes questions; loaded with the first question."""

TAKEN_BACK: Final = "the conversation was taken back to an earlier turn; resume it to read what is left"


class ConversationAdapter:
    """Converts the events of one conversation, with the engine's ids. Tracks the parts of each item that are not sent
    yet.
    """

    needs_identity = outlasts_clients = runs_tools = False

    def __init__(self, conversation_id: str, ids: ItemIds) -> None:
        self._conversation_id = ConversationId(conversation_id)
        self._tail = f',"conversationId":{json.dumps(conversation_id)}}}}}'.encode()
        self._hides_shutdown = False
        self._unannounced: set[str] = set()
        """Items whose start is sent with their end, or not at all."""
        self._renamed: set[str] = set()
        """Items without an id from the provider, and without a delta so far: codex 0.58 gives such an item another id
        when it completes, and this API does the same."""
        self._streamed: dict[tuple[object, ...], tuple[DeltaStream, ...]] = {}
        """Streamed texts of the open items, by kinds of deltas."""
        self._writing: set[str] = set()
        """Patches whose begin event was sent before they were complete."""
        self._review_window: int | None = None

    def lines(self, event: events.SessionEvent, *, subscribed: bool, raw: bool) -> Sequence[OutboundMessage]:
        """Return the notifications for one event, without line ends; often none."""
        inner = event.event
        if not subscribed:
            return ()
        if isinstance(inner, events.Delta):
            return self._delta(event.operation_id, inner)
        if isinstance(inner, HistoryItemRecorded) and not raw:
            return ()
        if self._hides_shutdown and isinstance(inner, SessionClosed):
            return ()
        if isinstance(inner, events.ItemCompleted):
            self._streamed.clear()
        return [self._shown(event, msg) for msg in self.messages(event)]

    def question(self, event: events.SessionEvent) -> OutboundRequest | None:
        return _QUESTION.get()(self._conversation_id, event.event)

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

    def messages(self, event: events.SessionEvent) -> Iterator[EventMsg]:
        """Convert an engine event into the events of this API; text deltas are converted by `_delta`."""
        id = event.operation_id
        match event.event:
            case events.ReasoningSummaryPart():
                yield messages.AgentReasoningSectionBreakEvent()
            case events.CommandOutput(item_id=call_id, stream=stream, chunk=chunk):
                encoded = base64.b64encode(chunk).decode("ascii")
                yield command_events.ExecCommandOutputDeltaEvent(
                    call_id=call_id, stream=stream, chunk=encoded
                )
            case events.ItemStarted() as started:
                yield from self._started(id, started)
            case events.ItemCompleted() as completed:
                yield from self._completed(id, completed)
            case events.PatchWriting(item=item, asked=asked):
                self._writing.add(item.id)
                yield command_events.PatchApplyBeginEvent(
                    call_id=item.id, auto_approved=not asked, changes=dict(item.changes)
                )
            case events.TurnStarted(kind=events.TurnKind.REVIEW) as review:
                self._review_window = review.model_context_window  # sent after its `entered_review_mode`
            case events.TurnStarted(model_context_window=window):
                yield turn_events.TaskStartedEvent(model_context_window=window)
            case events.TurnEnded() as ended:
                yield from _turn_end(ended)
            case events.AttemptFailed() | events.McpServersSettled() | McpCallQuestion() as told:
                yield from _told(told)
            case (
                events.AgentMessageDelta()
                | events.ReasoningSummaryDelta()
                | events.ReasoningTextDelta()  # `_delta` makes their lines
                | events.TerminalInput()
                | events.CommandRunning()
                | events.GoalUpdated()
                | events.GoalCleared()
                | events.SettingsChanged()
                | events.ModelRerouted()
                | events.McpServerStateChanged()
                | ToolCallQuestion()
                | UserInputQuestion()
                | TurnDiffUpdated(unified_diff="")
            ):
                pass  # this API has no events for them
            case other:
                yield legacy_event(other)

    def _delta(self, id: str, event: events.Delta) -> Sequence[OutboundMessage]:
        """Return the event with the item's id, if its start was sent, and the legacy event."""
        item, piece = event.item_id, event.delta
        self._renamed.discard(item)
        key = (id, type(event), item)
        texts = self._streamed.get(key)
        if texts is None:
            texts = self._streamed[key] = self._texts(id, event)
        return [OutboundMessage(text.line(piece), part=text.part(piece)) for text in texts]

    def _texts(self, id: str, event: events.Delta) -> tuple[DeltaStream, ...]:
        """Return the streamed texts that make the lines of deltas of this kind."""
        if isinstance(event, events.ReasoningTextDelta) and not event.show_content:
            return ()
        of_item, plain = DELTAS[type(event)]
        thread, item = self._conversation_id, event.item_id
        older = _text(self._line(id, plain(delta="")))
        if item in self._unannounced:
            return (older,)
        empty = of_item(thread_id=thread, turn_id=id, item_id=item, delta="")
        return _text(self._line(id, empty)), older

    def _started(self, id: str, event: events.ItemStarted) -> Iterator[EventMsg]:
        item = event.item
        if not event.announced or (isinstance(item, items.WebSearch) and not has_query(item)):
            self._unannounced.add(item.id)
            return
        if event.own_id:
            self._renamed.add(item.id)
        match item:
            case items.CommandExecution() | items.McpToolCall():
                yield from begin_events(item)
            case _:
                if (turn_item := _turn_item(item)) is not None:
                    yield turn_events.ItemStartedEvent(
                        thread_id=self._conversation_id, turn_id=id, item=turn_item
                    )

    def _completed(self, id: str, event: events.ItemCompleted) -> Iterator[EventMsg]:
        item = event.item
        unannounced = item.id in self._unannounced
        self._unannounced.discard(item.id)
        renamed = item.id in self._renamed
        self._renamed.discard(item.id)
        written = item.id in self._writing
        self._writing.discard(item.id)
        if event.cut or (unannounced and isinstance(item, items.UserMessage)):
            return
        if isinstance(item, items.FileChange) and not written:
            return
        shown = replace(item, id=str(uuid.uuid5(uuid.NAMESPACE_OID, item.id))) if renamed else item
        if (turn_item := _turn_item(shown)) is not None:
            thread = self._conversation_id
            if unannounced:
                yield turn_events.ItemStartedEvent(thread_id=thread, turn_id=id, item=turn_item)
            yield turn_events.ItemCompletedEvent(thread_id=thread, turn_id=id, item=turn_item)
        yield from legacy_events(item, raw_reasoning=isinstance(item, items.Reasoning) and item.show_content)
        if isinstance(item, items.EnteredReview):
            yield turn_events.TaskStartedEvent(model_context_window=self._review_window)

    def _shown(self, event: events.SessionEvent, msg: EventMsg) -> OutboundMessage:
        id, inner = event.operation_id, event.event
        line = self._line(id, msg)
        match msg:
            case command_events.ExecCommandOutputDeltaEvent() if isinstance(inner, events.CommandOutput):
                # Bytes are decoded as one character each (Latin-1), so that pieces of texts can be joined.
                return OutboundMessage(line, part=self._output(id, msg).part(inner.chunk.decode("latin-1")))
            case turn_events.TokenCountEvent():
                return OutboundMessage(line, state=(self._conversation_id, msg.type))
            case command_events.TurnDiffEvent() | tools.PlanUpdateEvent():
                return OutboundMessage(line, state=(self._conversation_id, msg.type, id))
            case _:
                return OutboundMessage(line)

    def _output(self, id: str, msg: command_events.ExecCommandOutputDeltaEvent) -> DeltaStream:
        def line(text: str) -> bytes:
            chunk = base64.b64encode(text.encode("latin-1")).decode("ascii")
            return self._line(id, replace(msg, chunk=chunk))

        key = (id, msg.type, msg.call_id, msg.stream)
        (text,) = self._streamed.setdefault(key, (DeltaStream(line, output=True),))
        return text

    def _line(self, id: str, msg: EventMsg) -> bytes:
        head = f'{{"method":{json.dumps(event_method(msg.type))},"params":{{"id":{json.dumps(id)},"msg":'
        return head.encode() + msg.to_json() + self._tail


CONVERSATIONS: Final = ConversationApi(ApiId("v1"), ConversationAdapter)


def _text(empty: bytes) -> DeltaStream:
    """Return the streamed text of an event, given as JSON with an empty delta."""
    before, field, behind = empty.partition(b'"delta":')
    head, tail = before + field, behind.removeprefix(b'""')
    return DeltaStream(lambda piece: head + json_bytes(piece) + tail)


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


def _told(event: events.AttemptFailed | events.McpServersSettled | McpCallQuestion) -> Iterator[EventMsg]:
    match event:
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
