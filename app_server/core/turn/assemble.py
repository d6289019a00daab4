"""A reply of the model while it streams: its events become ours, its items are collected. Does no I/O.

Order per item: `item_started` (when it is added, or else when it is done), deltas, `item_completed`, older events.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

from app_server.core.model.events import (
    OutputItemAdded,
    OutputItemDone,
    OutputTextDelta,
    ReasoningContentDelta,
    ReasoningSummaryDelta,
    ReasoningSummaryPartAdded,
)
from app_server.core.turn.items import older_events, turn_item
from protocol.events.deltas import (
    AgentMessageContentDeltaEvent,
    AgentMessageDeltaEvent,
    AgentReasoningDeltaEvent,
    AgentReasoningRawContentDeltaEvent,
    ReasoningContentDeltaEvent,
    ReasoningRawContentDeltaEvent,
)
from protocol.events.messages import AgentReasoningSectionBreakEvent
from protocol.events.msg import EventMsg
from protocol.events.turn import ItemCompletedEvent, ItemStartedEvent
from protocol.items import AgentMessageItem, TurnItem
from protocol.responses import ResponseItem

Visible = (
    OutputItemAdded
    | OutputItemDone
    | OutputTextDelta
    | ReasoningSummaryDelta
    | ReasoningSummaryPartAdded
    | ReasoningContentDelta
)


class ReplyAssembler:
    """Tells what the model says as it says it."""

    def __init__(
        self,
        emit: Callable[[EventMsg], None],
        new_id: Callable[[], str],
        *,
        conversation_id: str,
        turn_id: str,
        raw_reasoning: bool,
        show_messages: bool = True,
    ) -> None:
        self._emit, self._new_id = emit, new_id
        self._conversation_id, self._turn_id = conversation_id, turn_id
        self._raw_reasoning = raw_reasoning
        self._show_messages = show_messages
        self._started: str | None = None
        """The item that is being written."""
        self._told = False
        """Whether the client was sent pieces of it, under that id."""

    def text_delta(self, delta: str) -> None:
        """The hot path: two events of the same text, the older form last."""
        if not self._show_messages:
            return
        emit = self._emit
        if self._started is not None:
            self._told = True
            emit(
                AgentMessageContentDeltaEvent.model_construct(
                    thread_id=self._conversation_id, turn_id=self._turn_id, item_id=self._started, delta=delta
                )
            )
        emit(AgentMessageDeltaEvent.model_construct(delta=delta))

    def take(self, event: Visible) -> None:
        match event:
            case OutputTextDelta():
                self.text_delta(event.delta)
            case OutputItemAdded():
                self._added(event.item)
            case OutputItemDone():
                self._done(event.item)
            case ReasoningSummaryDelta():
                if self._started is not None:
                    self._emit(ReasoningContentDeltaEvent(**self._place(), delta=event.delta))
                self._emit(AgentReasoningDeltaEvent(delta=event.delta))
            case ReasoningSummaryPartAdded():
                self._emit(AgentReasoningSectionBreakEvent())
            case ReasoningContentDelta():
                self._raw_reasoning_delta(event.delta)
            case _:
                assert_never(event)

    def _raw_reasoning_delta(self, delta: str) -> None:
        if not self._raw_reasoning:
            return
        if self._started is not None:
            self._emit(ReasoningRawContentDeltaEvent(**self._place(), delta=delta))
        self._emit(AgentReasoningRawContentDeltaEvent(delta=delta))

    def _place(self) -> dict[str, str]:
        self._told = True
        return {"thread_id": self._conversation_id, "turn_id": self._turn_id, "item_id": self._started or ""}

    def _added(self, item: ResponseItem) -> None:
        shown = self._shown(item)
        if shown is not None:
            self._started, self._told = shown.id, False
            self._emit(self._item_started(shown))

    def _done(self, item: ResponseItem) -> None:
        # An item without an id of the provider's is named anew when it is whole, as the reference does, unless
        # pieces of it were told under the first name.
        shown = self._shown(item, keep_id=self._told)
        if shown is None:
            return
        if self._started is None:
            self._emit(self._item_started(shown))
        self._started = None
        completed = ItemCompletedEvent(thread_id=self._conversation_id, turn_id=self._turn_id, item=shown)
        self._emit(completed)
        for event in older_events(shown, raw_reasoning=self._raw_reasoning):
            self._emit(event)

    def _item_started(self, item: TurnItem) -> ItemStartedEvent:
        return ItemStartedEvent(thread_id=self._conversation_id, turn_id=self._turn_id, item=item)

    def _shown(self, item: ResponseItem, *, keep_id: bool = True) -> TurnItem | None:
        kept = self._started if keep_id else None
        shown = turn_item(item, kept or self._new_id())
        if isinstance(shown, AgentMessageItem) and not self._show_messages:
            return None
        return shown
