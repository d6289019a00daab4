"""Snapshot of a conversation as a few events: the running turn, and each item that has begun and not ended, with its
content so far. An adapter that receives them has the same state as one that received all events. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec import Struct

from app_server.engine.storage.turn_fold import ItemIds
from app_server_protocol.engine.events import (
    AgentMessageDelta,
    CommandOutput,
    CommandRunning,
    ItemCompleted,
    ItemStarted,
    PatchWriting,
    ReasoningSummaryDelta,
    ReasoningSummaryPart,
    ReasoningTextDelta,
    SessionEvent,
    TurnEnded,
    TurnStarted,
)
from app_server_protocol.engine.items import FileChange
from app_server_protocol.values import replace

MOST_PRINTED = 1 << 20
"""Maximum size of a running command's output that is kept, in bytes."""

Growing = AgentMessageDelta | ReasoningSummaryDelta | ReasoningTextDelta | CommandOutput


class PartialItem(Struct):
    started: SessionEvent
    pieces: list[SessionEvent] = msgspec.field(default_factory=list)
    printed: int = 0

    def events(self) -> Iterator[SessionEvent]:
        """Yield the begin of the item and its content so far: consecutive deltas are coalesced into one."""
        yield self.started
        same: list[SessionEvent] = []
        for each in self.pieces:
            if same and _kind(same[0]) != _kind(each):
                yield _joined(same)
                same = []
            same.append(each)
        if same:
            yield _joined(same)


class LiveTurn(Struct):
    ids: ItemIds = msgspec.field(default_factory=ItemIds)
    """Ids of all items that have ended, including those of stored turns."""
    _turn: SessionEvent | None = None
    _open: dict[tuple[str | None, str], PartialItem] = msgspec.field(default_factory=dict)

    def take(self, event: SessionEvent) -> None:
        match event.event:
            case (
                AgentMessageDelta(item_id=id)
                | ReasoningSummaryDelta(item_id=id)
                | ReasoningSummaryPart(item_id=id)
                | ReasoningTextDelta(item_id=id)
                | CommandRunning(item_id=id)
                | PatchWriting(item=FileChange(id=id))
            ):
                if (growing := self._open.get((event.turn_id, id))) is not None:
                    growing.pieces.append(event)
            case CommandOutput(item_id=id, chunk=chunk):
                if (growing := self._open.get((event.turn_id, id))) is not None:
                    growing.printed += len(chunk)
                    if growing.printed <= MOST_PRINTED:
                        growing.pieces.append(event)
            case TurnStarted():
                self._turn = event
            case TurnEnded():
                self._turn = None
            case ItemStarted(item=item):
                self._open[event.turn_id, item.id] = PartialItem(event)
            case ItemCompleted(item=item):
                self._open.pop((event.turn_id, item.id), None)
                self.ids.reserve(item.id)
            case _:
                pass

    def events(self) -> Iterator[SessionEvent]:
        if self._turn is not None:
            yield self._turn
        for growing in self._open.values():
            yield from growing.events()


def _kind(event: SessionEvent) -> tuple[object, ...]:
    piece = event.event
    return type(piece), getattr(piece, "index", None), getattr(piece, "stream", None)


def _joined(same: list[SessionEvent]) -> SessionEvent:
    first, event = same[0].event, same[0]
    if isinstance(first, CommandOutput):
        chunks = (each.event.chunk for each in same if isinstance(each.event, CommandOutput))
        return replace(event, event=replace(first, chunk=b"".join(chunks)))
    if isinstance(first, AgentMessageDelta | ReasoningSummaryDelta | ReasoningTextDelta):
        texts = (each.event.delta for each in same if isinstance(each.event, type(first)))
        return replace(event, event=replace(first, delta="".join(texts)))
    return event
