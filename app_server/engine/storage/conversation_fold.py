"""Folds the events of a stored conversation into what clients are shown of it: turns, messages, the last plan. Pure."""

from __future__ import annotations

from app_server.engine.storage import plain_texts
from app_server.engine.storage.decode import RolloutDecoder
from app_server.engine.storage.encode import kept_item
from app_server.engine.storage.history_calls import OF_CALLS
from app_server.engine.storage.record import RevertedRanges, StoredRecord
from app_server.engine.storage.turn_edges import Events
from app_server.engine.storage.turn_fold import TurnFold, WholeHistory
from app_server_protocol.engine.events import (
    EngineEvent,
    ItemCompleted,
    TurnEnded,
    TurnRenamed,
    TurnStatus,
)
from app_server_protocol.engine.items import Item, Reasoning
from app_server_protocol.engine.legacy import begin_events, legacy_event, legacy_events
from app_server_protocol.engine.notices import PlanUpdated, TokenUsageUpdated, UndoCompleted
from app_server_protocol.events.msg import EventMsg
from app_server_protocol.events.turn_events import TurnAbortedEvent


class ConversationFold:
    """All lines of one conversation in one pass, including reverted ones, whose ids are not used again."""

    def __init__(
        self,
        conversation_id: str,
        reverted_lines: RevertedRanges,
        *,
        turns: bool = True,
        messages: bool = False,
    ) -> None:
        """Begin without lines. `turns`, `messages`: what is wanted; the plan comes with the turns. `reverted_lines`
        has all reverted lines, or none yet: then only lines of the past are added to it.
        """
        self._conversation_id, self._reverted_lines = conversation_id, reverted_lines
        self._skips = bool(reverted_lines)
        self._turns, self._wants_messages = TurnFold() if turns else None, messages
        self._texts = None if turns else plain_texts.PlainTextDecoder.of(conversation_id)
        self._decoder = self._texts or RolloutDecoder(conversation_id, notices=messages)
        self._gone: RolloutDecoder | None = None
        self.messages: list[EventMsg] = []
        """Events of the conversation API; empty if they are not wanted."""
        self._plan: PlanUpdated | None = None

    @property
    def damaged(self) -> int:
        """Number of lines about an item of a known kind that cannot be read."""
        return self._decoder.damaged

    def take(self, number: int, record: StoredRecord) -> None:
        if not self._skips or number not in self._reverted_lines:
            self._gone, texts = None, self._texts
            if (
                texts is not None
                and record.name in plain_texts.NAMES
                and (text := texts.take_text(number, record)) is not None
            ):
                self.messages.append(text)
            elif decoded := self._decoder.take(number, record):
                self._apply(decoded)
        elif self._turns is not None:
            self._gone = self._gone or RolloutDecoder(self._conversation_id)
            self._turns.ids.pass_over(self._gone.take(number, record))

    def finish(self, *, is_open: bool = False) -> WholeHistory | None:
        """Return the turns; None if they are not wanted. `is_open`: the conversation goes on."""
        self._apply(self._decoder.finish(is_open=is_open))
        if self._turns is None:
            return None
        return WholeHistory(tuple(self._turns.turns), self._turns.ids, self._plan)

    def _apply(self, decoded: Events) -> None:
        if self._turns is not None:
            self._turns.apply_all(decoded)
        for event in decoded:
            if isinstance(event, TurnRenamed):
                continue
            inner = event.event
            if isinstance(inner, PlanUpdated):
                self._plan = inner
            elif self._wants_messages:
                _add_messages(self.messages, inner)


def _add_messages(messages: list[EventMsg], event: EngineEvent) -> None:
    """Add the events of the conversation API that show a stored event, as codex 0.58 shows what it stored. Calls are
    shown with their begin and end, as while they ran.
    """
    if isinstance(event, ItemCompleted):
        if event.announced:
            _add_item(messages, event.item)
    elif isinstance(event, TurnEnded):
        if event.reason is not None and event.status is TurnStatus.INTERRUPTED:
            messages.append(TurnAbortedEvent(reason=event.reason))
    elif isinstance(event, TokenUsageUpdated | UndoCompleted):
        messages.append(legacy_event(event))


def _add_item(messages: list[EventMsg], item: Item) -> None:
    raw_reasoning = False
    if type(item) in OF_CALLS:
        item = kept_item(item)
        messages += begin_events(item)
    elif isinstance(item, Reasoning):
        raw_reasoning = item.show_content
    messages += legacy_events(item, raw_reasoning=raw_reasoning)
