"""What goes on in a conversation at the moment, as few events: the turn that runs, and each item that has begun and not
ended, with what has come of it. An adapter that is handed them knows what one knows that has seen everything. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec import Struct

from app_server.core.rollout.turn_fold import ItemIds
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
from app_server_protocol.structs import replace

MOST_PRINTED = 1 << 20
"""Bytes of a running command's output that are kept."""

Growing = AgentMessageDelta | ReasoningSummaryDelta | ReasoningTextDelta | CommandOutput


class GrowingItem(Struct):
    started: SessionEvent
    pieces: list[SessionEvent] = msgspec.field(default_factory=list)
    printed: int = 0

    def events(self) -> Iterator[SessionEvent]:
        """Yield its begin, and what has come of it: pieces that follow one another as one."""
        yield self.started
        same: list[SessionEvent] = []
        for each in self.pieces:
            if same and _kind(same[0]) != _kind(each):
                yield _joined(same)
                same = []
            same.append(each)
        if same:
            yield _joined(same)


class SoFar(Struct):
    ids: ItemIds = msgspec.field(default_factory=ItemIds)
    """Of all items that have ended, stored ones of before, too."""
    _turn: SessionEvent | None = None
    _open: dict[tuple[str | None, str], GrowingItem] = msgspec.field(default_factory=dict)

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
                self._open[event.turn_id, item.id] = GrowingItem(event)
            case ItemCompleted(item=item):
                self._open.pop((event.turn_id, item.id), None)
                self.ids.begin_and_end(item.id)
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
