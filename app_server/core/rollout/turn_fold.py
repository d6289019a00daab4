"""Folds events into turns with items, both for the running turn and for stored ones. Pure.

Items enter a turn when they are completed; the fold knows open items only by id. The ids of the provider and the model
may repeat within a conversation. The fold assigns unique ids in the order of the items' starts, so that the same events
yield the same ids, both live and stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import field, replace

from app_server.core.rollout.stored_events import kept_item
from protocol.engine.events import (
    ItemCompleted,
    ItemStarted,
    SessionEvent,
    TurnEnded,
    TurnStarted,
    TurnStatus,
)
from protocol.engine.turns import EndedItem, TurnRecord, TurnRenamed, TurnState
from protocol.records import dataclass

STATES = {
    TurnStatus.COMPLETED: TurnState.COMPLETED,
    TurnStatus.INTERRUPTED: TurnState.INTERRUPTED,
    TurnStatus.FAILED: TurnState.FAILED,
}


@dataclass(slots=True)
class ItemIds:
    """Ids of a conversation's items, each used for one item only."""

    _times: dict[str, int] = field(default_factory=dict)
    _open: dict[str, str] = field(default_factory=dict)

    def copy(self) -> ItemIds:
        return ItemIds(dict(self._times), dict(self._open))

    def begin(self, id: str) -> str:
        """The unique id of an item that begins under `id`."""
        times = self._times.get(id, 0) + 1
        unique = id if times == 1 else f"{id}-{times}"
        while times > 1 and unique in self._times:  # an item of its own has that id
            times += 1
            unique = f"{id}-{times}"
        self._times[id] = times
        self._times.setdefault(unique, 1)
        self._open[id] = unique
        return unique

    def of(self, id: str) -> str:
        """The unique id of the item that began last under `id`."""
        return self._open.get(id, id)

    def end(self, id: str) -> str:
        """The same; the item is over."""
        known = self._open.pop(id, None)
        return self.begin_and_end(id) if known is None else known

    def begin_and_end(self, id: str) -> str:
        unique = self.begin(id)
        del self._open[id]
        return unique


@dataclass(slots=True)
class TurnFold:
    """Applies the events of one conversation in order."""

    ids: ItemIds = field(default_factory=ItemIds)
    turns: list[TurnRecord] = field(default_factory=list)
    _index: dict[str, int] = field(default_factory=dict)

    def apply_all(self, events: Iterable[SessionEvent | TurnRenamed]) -> None:
        for event in events:
            self.apply(event)

    def apply(self, event: SessionEvent | TurnRenamed) -> None:
        """Ignores events outside of turns."""
        if isinstance(event, TurnRenamed):
            self._rename(event)
            return
        turn_id = event.turn_id
        match event.event:
            case TurnStarted(kind=kind, started_at=started_at) if turn_id is not None:
                self._open_turn(turn_id)
                self._change(turn_id, lambda turn: replace(turn, kind=kind, started_at=_whole(started_at)))
            case ItemStarted(item=item):
                self.ids.begin(item.id)
            case ItemCompleted() as completed if turn_id is not None:
                self._open_turn(turn_id)
                self._add(turn_id, completed)
            case TurnEnded() as ended if turn_id is not None:
                self._open_turn(turn_id)
                self._end(turn_id, ended)
            case _:
                pass

    @property
    def running(self) -> TurnRecord | None:
        """The turn that has not ended; at most one runs at a time."""
        last = self.turns[-1] if self.turns else None
        return last if last is not None and last.state is TurnState.IN_PROGRESS else None

    def _rename(self, event: TurnRenamed) -> None:
        n = self._index.get(event.before)
        if n is None:
            return
        if event.after in self._index:  # two turns of one name: the first lines are one that got no end
            self._change(event.before, lambda turn: replace(turn, state=TurnState.INTERRUPTED))
            return
        self._index[event.after] = self._index.pop(event.before)
        self._change(event.after, lambda turn: replace(turn, id=event.after))

    def _open_turn(self, turn_id: str) -> None:
        if turn_id not in self._index:
            self._index[turn_id] = len(self.turns)
            self.turns.append(TurnRecord(id=turn_id))

    def _change(self, turn_id: str, change: Callable[[TurnRecord], TurnRecord]) -> None:
        n = self._index[turn_id]
        self.turns[n] = change(self.turns[n])

    def _add(self, turn_id: str, event: ItemCompleted) -> None:
        item = kept_item(event.item)
        id = self.ids.end(item.id)
        if item.id != id:
            item = replace(item, id=id)
        ended = EndedItem(item, event.started_at_ms or None, event.at_ms or None, event.cut)
        self._change(turn_id, lambda turn: replace(turn, items=(*turn.items, ended)))

    def _end(self, turn_id: str, event: TurnEnded) -> None:
        self._change(
            turn_id,
            lambda turn: replace(
                turn,
                state=STATES[event.status],
                error=event.error,
                started_at=turn.started_at if turn.started_at is not None else _whole(event.started_at),
                ended_at=_whole(event.ended_at),
                seconds=None if event.seconds is None else round(event.seconds, 3),
            ),
        )


def _whole(seconds: float | None) -> float | None:
    """Whole seconds, as stored; None for 0, which means unknown in old files."""
    return float(int(seconds)) if seconds else None
