"""Folds events into turns with items, both for the running turn and for stored ones. Pure.

Items enter a turn when they are completed; the fold knows open items only by id. The ids of the provider and the model
may repeat within a conversation. The fold assigns unique ids in the order of the items' starts, so that the same events
yield the same ids, both live and stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from app_server.engine.storage.encode import kept_item
from app_server_protocol.engine import events
from app_server_protocol.engine.errors import TurnError
from app_server_protocol.engine.events import EndedItem, SessionEvent, TurnRecord, TurnRenamed, TurnStatus
from app_server_protocol.engine.notices import PlanUpdated
from app_server_protocol.values import replace


class ItemIds(Struct):
    """Maps the ids of items to ids that are unique in the conversation."""

    times: dict[str, int] = msgspec.field(default_factory=dict)
    """How often an item began under each id; 1 for a unique id that was made of another one."""
    _open: dict[str, str] = msgspec.field(default_factory=dict)

    def copy(self) -> ItemIds:
        return ItemIds(dict(self.times), dict(self._open))

    def __contains__(self, id: str) -> bool:
        """Return whether an item has this unique id."""
        return id in self.times

    def begin(self, id: str) -> str:
        """Return the unique id of an item that begins under `id`."""
        times = self.times.get(id, 0) + 1
        unique = id if times == 1 else f"{id}-{times}"
        while times > 1 and unique in self.times:  # another item has that id of its own
            times += 1
            unique = f"{id}-{times}"
        self.times[id] = times
        self.times.setdefault(unique, 1)
        self._open[id] = unique
        return unique

    def of(self, id: str) -> str:
        """Return the unique id of the item that began last under `id`."""
        return self._open.get(id, id)

    def end(self, id: str) -> str:
        """Return the unique id of the item that ends under `id`."""
        known = self._open.pop(id, None)
        return self.reserve(id) if known is None else known

    def reserve(self, id: str) -> str:
        unique = self.begin(id)
        del self._open[id]
        return unique

    def forget(self, unique: Iterable[str]) -> None:
        """Forget items by their unique ids."""
        for id in unique:
            self.times.pop(id, None)

    def pass_over(self, gone: Iterable[SessionEvent | TurnRenamed]) -> None:
        """Count the items of reverted events: these items have been shown under their ids."""
        for event in gone:
            if isinstance(event, SessionEvent) and isinstance(event.event, events.ItemCompleted):
                self.end(event.event.item.id)


class WholeHistory(Struct, frozen=True):
    turns: tuple[TurnRecord, ...]
    ids: ItemIds
    """Ids of all items, including reverted ones."""
    plan: PlanUpdated | None = None
    """The last plan; None if there is none."""

    @property
    def items(self) -> Iterator[EndedItem]:
        """All items, in the order of their turns."""
        return (ended for turn in self.turns for ended in turn.items)


class _Draft(Struct):
    """A turn while its events are applied. Its record is made at the end, because a long file has tens of thousands of
    events.
    """

    id: str
    kind: events.TurnKind = events.TurnKind.REGULAR
    state: TurnStatus = TurnStatus.IN_PROGRESS
    items: list[EndedItem] = msgspec.field(default_factory=list)
    error: TurnError | None = None
    started_at: float | None = None
    ended_at: float | None = None
    seconds: float | None = None

    def record(self) -> TurnRecord:
        return TurnRecord(**{**asdict(self), "items": tuple(self.items)})


class TurnFold(Struct):
    """Applies the events of one conversation in order."""

    ids: ItemIds = msgspec.field(default_factory=ItemIds)
    _drafts: dict[str, _Draft] = msgspec.field(default_factory=dict)
    """Drafts by the ids of their turns, in the order of the turns."""

    @property
    def turns(self) -> list[TurnRecord]:
        return [draft.record() for draft in self._drafts.values()]

    @property
    def last(self) -> TurnRecord:
        """The last turn. Raises StopIteration if there is none."""
        return next(reversed(self._drafts.values())).record()

    def apply_all(self, stored: Iterable[SessionEvent | TurnRenamed]) -> None:
        for event in stored:
            self.apply(event)

    def apply(self, event: SessionEvent | TurnRenamed) -> None:
        """Apply an event. An event outside of any turn is ignored."""
        if isinstance(event, TurnRenamed):
            self._rename(event)
            return
        turn_id, inner = event.turn_id, event.event
        if isinstance(inner, events.ItemStarted):
            self.ids.begin(inner.item.id)
        elif turn_id is None:
            pass
        elif isinstance(inner, events.ItemCompleted):
            self._add(self._turn(turn_id), inner)
        elif isinstance(inner, events.TurnStarted):
            draft = self._turn(turn_id)
            draft.kind, draft.started_at = inner.kind, _whole(inner.started_at)
        elif isinstance(inner, events.TurnEnded):
            self._end(self._turn(turn_id), inner)

    def _rename(self, event: TurnRenamed) -> None:
        draft = self._drafts.get(event.before)
        if draft is None:
            return
        if (
            event.after in self._drafts
        ):  # two turns have one name: the first lines are those of a turn without an end
            draft.state = TurnStatus.INTERRUPTED
            return
        draft.id = event.after
        self._drafts = {each.id: each for each in self._drafts.values()}

    def _turn(self, turn_id: str) -> _Draft:
        draft = self._drafts.get(turn_id)
        if draft is None:
            draft = self._drafts[turn_id] = _Draft(turn_id)
        return draft

    def _add(self, turn: _Draft, event: events.ItemCompleted) -> None:
        item = kept_item(event.item)
        id = self.ids.end(item.id)
        if item.id != id:
            item = replace(item, id=id)
        turn.items.append(EndedItem(item, event.started_at_ms or None, event.at_ms or None, event.cut))

    def _end(self, turn: _Draft, event: events.TurnEnded) -> None:
        turn.state, turn.error = event.status, event.error
        if turn.started_at is None:
            turn.started_at = _whole(event.started_at)
        turn.ended_at = _whole(event.ended_at)
        turn.seconds = None if event.seconds is None else round(event.seconds, 3)


def _whole(seconds: float | None) -> float | None:
    """Return whole seconds, as they are stored; None for 0, which means unknown in old files."""
    return float(int(seconds)) if seconds else None
