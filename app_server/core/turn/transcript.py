"""Where a turn's items go: the conversation's history with its rollout, or a history of its own for a review."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from app_server.core.context.history import ConversationHistory
from app_server.core.turn.outbox import Outbox
from protocol.engine.events import EngineEvent
from protocol.events.turn import RawResponseItemEvent
from protocol.responses import OtherItem, ResponseItem


class Emits(Protocol):
    """What emits events for a turn or for an operation."""

    def emit(self, event: EngineEvent, *, wake: bool = True) -> None: ...


class Transcript(Protocol):
    history: ConversationHistory

    def record(self, emitter: Emits, items: Sequence[ResponseItem]) -> None:
        """The items are part of the conversation from now on."""
        ...

    def announce(self, item: ResponseItem) -> None:
        """The client is about to be sent an item that is recorded later."""
        ...

    def take_back(self) -> None:
        """What was announced and not recorded never will be."""
        ...


class StoredTranscript:
    """History in memory, lines in the rollout, an event for clients that asked for raw items."""

    def __init__(self, history: ConversationHistory, outbox: Outbox) -> None:
        self.history, self.outbox = history, outbox

    def record(self, emitter: Emits, items: Sequence[ResponseItem]) -> None:
        self.history.record(items)
        self.outbox.record_items(items)
        for item in items:
            if not isinstance(item, OtherItem):
                emitter.emit(RawResponseItemEvent(item=item))

    def announce(self, item: ResponseItem) -> None:
        self.outbox.log_ahead(item)

    def take_back(self) -> None:
        self.outbox.drop_log_ahead()


class IsolatedTranscript:
    """A review's: nothing of it reaches the conversation."""

    def __init__(self, history: ConversationHistory) -> None:
        self.history = history

    def record(self, emitter: Emits, items: Sequence[ResponseItem]) -> None:
        self.history.record(items)

    def announce(self, item: ResponseItem) -> None:
        pass

    def take_back(self) -> None:
        pass
