"""The running turn of a conversation: the fold of its events, with each item that goes on and its text so far. Pure.

Everybody who shows the turn reads it here: the adapters of all APIs make their messages of an event and this fold, a
client that joins is sent a snapshot of it. The texts of items are those that the engine keeps, up to the last event.

The fold also restores the order that clients rely on where the engine breaks it: an item begins before anything else is
said of it and ends once. A second item under the same id, or an end of another kind of item, ends the first. No item is
left when its turn ends, except a command that goes on. Items have ids that are unique in the conversation: the engine's
ids are those of the provider or the model, which may use an id again, even before its first item has ended.

What has ended is on the disk, not here. Who reads it there holds a `Position` from before, because the reading takes a
while: it leads to what has ended since.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
from msgspec import Struct

from app_server.engine.storage.encode import kept_item
from app_server.engine.storage.turn_fold import ItemIds, TurnFold
from app_server.server.conversations.item_text import KEPT_TAIL, PrintedOutput, ShownText
from app_server_protocol.engine import events, items
from app_server_protocol.engine.events import EndedItem, SessionEvent, TurnRecord
from app_server_protocol.engine.item_text import Part, with_text
from app_server_protocol.engine.notices import PlanUpdated
from app_server_protocol.values import replace


class LiveItem(Struct, eq=False):
    """An item that has begun and not ended."""

    begun: SessionEvent
    """The event of its start."""
    started: events.ItemStarted
    item: items.Item
    """The item as it began, with its id in the conversation."""
    parts: dict[Part, ShownText] = msgspec.field(default_factory=dict)
    """Texts of a message or of reasoning, in the order of their begins."""
    announced: set[int] = msgspec.field(default_factory=set)
    """Parts of a summary whose begin was an event of its own."""
    output: PrintedOutput | None = None
    """Output of a command, or of the writer of a patch; None if there is none."""
    runs: int = 0
    """Number of times that the command or the patch was allowed to start."""
    writing: events.PatchWriting | None = None
    """The last event that a patch is being written."""

    @property
    def turn_id(self) -> str | None:
        return self.begun.turn_id

    def part(self, part: Part) -> ShownText:
        text = self.parts.get(part)
        if text is None:
            text = self.parts[part] = ShownText()
        return text

    @property
    def has_text(self) -> bool:
        """Whether any delta has come."""
        return any(text.end for text in self.parts.values())

    def so_far(self) -> items.Item:
        """Return the item with its content so far."""
        if isinstance(self.item, items.CommandExecution) and self.output is not None:
            return replace(self.item, output=self.output.text())
        return with_text(self.item, {part: text.text() for part, text in self.parts.items()})

    @property
    def goes_on(self) -> bool:
        """Whether the item may outlive its turn."""
        return (
            isinstance(self.item, items.CommandExecution) and self.item.source is items.CommandSource.TERMINAL
        )

    def cut(self, at_ms: int) -> SessionEvent:
        """Return the end of the item, which was interrupted before its own end."""
        item = replace(self.so_far(), id=self.started.item.id)
        if isinstance(
            item, items.CommandExecution | items.FileChange | items.McpToolCall | items.DynamicToolCall
        ):
            item = replace(item, status=items.ItemStatus.FAILED)
        ended = events.ItemCompleted(item, self.started.at_ms, at_ms, cut=True)
        return SessionEvent(self.begun.operation_id, self.turn_id, ended)


class LateItem(Struct, frozen=True):
    """An item that has ended after its turn."""

    turn_id: str
    ended: EndedItem


class Position(Struct, eq=False):
    """A position among what ends in a conversation. Turns and late items that end are kept as long as somebody holds a
    position before them.
    """

    _ended: TurnFold | LateItem | None = None
    """The turn or the item that has ended next; None if none has yet."""
    _next: Position | None = None

    def passed(self, ended: TurnFold | LateItem) -> Position:
        """Return the position behind what has ended here."""
        self._ended, self._next = ended, Position()
        return self._next

    def turns(self) -> Iterator[TurnRecord]:
        """Yield the turns that have ended since."""
        return (each.last for each in self._since() if isinstance(each, TurnFold))

    def late_items(self) -> Iterator[LateItem]:
        """Yield the items that have ended since, after their turns."""
        return (each for each in self._since() if isinstance(each, LateItem))

    def _since(self) -> Iterator[TurnFold | LateItem]:
        at: Position | None = self
        while at is not None and at._ended is not None:
            yield at._ended
            at = at._next


class LiveTurn(Struct, eq=False):
    """The running turn, and the items that go on."""

    ids: ItemIds = msgspec.field(default_factory=ItemIds)
    """Ids of all items that have begun, including those of stored turns."""
    item: LiveItem | None = None
    """The item that the last event is about, also if the event ends it; None if it is about no item."""
    began: SessionEvent | None = None
    """The start of the running turn; None if no turn runs."""
    kept_tail: int = KEPT_TAIL
    """Length of the end of a command's output that is kept, in characters."""
    plan: PlanUpdated | None = None
    """The last plan since the conversation was opened; None if there is none."""
    position: Position = msgspec.field(default_factory=Position)
    """Position behind everything that has ended."""
    _fold: TurnFold = msgspec.field(default_factory=TurnFold)
    """The running turn with its ended items."""
    _open: dict[tuple[str | None, str], LiveItem] = msgspec.field(default_factory=dict)
    """Items that go on, by turn and by the engine's id."""

    # --- reading
    @property
    def turn_id(self) -> str | None:
        """Id of the running turn; None if no turn runs."""
        return None if self.began is None else self.began.turn_id

    @property
    def started(self) -> events.TurnStarted | None:
        began = None if self.began is None else self.began.event
        return began if isinstance(began, events.TurnStarted) else None

    @property
    def record(self) -> TurnRecord | None:
        """The running turn with the items that have ended; None if no turn runs."""
        return None if self.turn_id is None else self._fold.last

    def ended(self, event: SessionEvent) -> TurnRecord:
        """Return the turn that an event ends."""
        fold = self._fold if self.turn_id == event.turn_id else TurnFold()
        fold.apply(event)
        return fold.last

    def items_since(self, position: Position) -> Iterator[EndedItem]:
        """Yield the items that have ended since, and those of a running turn that had ended before."""
        for turn in position.turns():
            yield from turn.items
        yield from (each.ended for each in position.late_items())
        if (record := self.record) is not None:
            yield from record.items

    def open_items(self) -> list[LiveItem]:
        """Return all items that go on, also those whose turns have ended."""
        return list(self._open.values())

    def ended_ids(self) -> ItemIds:
        """Return the ids of all items that have ended by now."""
        ids = self.ids.copy()
        ids.forget(each.item.id for each in self._open.values())
        return ids

    def latest(self, turn_id: str | None, engine_id: str) -> LiveItem | None:
        """Return the open item of the turn, or of an earlier turn: a command may go on after its turn."""
        exact = self._open.get((turn_id, engine_id))
        if exact is not None:
            return exact
        return next(
            (each for each in reversed(self._open.values()) if each.started.item.id == engine_id), None
        )

    def item_id(self, turn_id: str, engine_id: str) -> str:
        """Return the id by which clients know an item that goes on."""
        item = self.latest(turn_id, engine_id)
        return engine_id if item is None else item.item.id

    # --- events
    def take(self, event: SessionEvent) -> Iterable[SessionEvent]:
        """Apply an event; yield it when it is applied, with the events before it that restore the order. An item or a
        turn is still here while its end is handed on.
        """
        inner, self.item = event.event, None
        match inner:
            case events.ItemStarted():
                return self._begin(event, inner)
            case events.ItemCompleted():
                return self._end(event, inner)
            case events.TurnStarted():
                return self._begin_turn(event)
            case events.TurnEnded():
                return self._end_turn(event, inner)
            case PlanUpdated():
                self.plan = inner
            case events.ItemTextGrown(item_id=id) | events.ReasoningSummaryPart(item_id=id):
                self.item = self._open.get((event.turn_id, id))
            case (
                events.CommandOutput(item_id=id)
                | events.TerminalInput(item_id=id)
                | events.CommandRunning(item_id=id)
                | events.PatchWriting(item=items.FileChange(id=id))
            ):
                self.item = self.latest(event.turn_id, id)
            case _:
                pass
        if self.item is not None:
            self._go_on(self.item, inner)
        return (event,)

    def _begin_turn(self, event: SessionEvent) -> Iterable[SessionEvent]:
        if self.turn_id is not None and self.turn_id == event.turn_id:
            return ()
        self.began, self._fold = event, TurnFold()
        self._fold.apply(event)
        return (event,)

    def _go_on(self, item: LiveItem, event: events.EngineEvent) -> None:
        match event:
            case events.ItemTextGrown():
                item.part(event.part).grow(event)
            case events.CommandOutput():
                if item.output is None:
                    item.output = PrintedOutput(tail=self.kept_tail)
                item.output.add_chunk(event.stream, event.chunk)
            case events.CommandRunning():
                item.runs += 1
            case events.PatchWriting():
                item.runs, item.writing = item.runs + 1, event
            case events.ReasoningSummaryPart(index=index):
                item.part((True, index))
                item.announced.add(index)
            case _:
                pass

    def _begin(self, event: SessionEvent, inner: events.ItemStarted) -> Iterator[SessionEvent]:
        key = (event.turn_id, inner.item.id)
        if (before := self._open.get(key)) is not None:
            yield from self.take(before.cut(inner.at_ms))
        unique = self.ids.reserve(inner.item.id)
        item = inner.item if unique == inner.item.id else replace(inner.item, id=unique)
        self.item = self._open[key] = LiveItem(event, inner, item)
        yield event

    def _end(self, event: SessionEvent, inner: events.ItemCompleted) -> Iterator[SessionEvent]:
        key = (event.turn_id, inner.item.id)
        if (before := self._open.get(key)) is not None and type(before.item) is not type(inner.item):
            yield from self.take(before.cut(inner.at_ms))
        if key not in self._open:
            started = events.ItemStarted(inner.item, inner.started_at_ms, announced=False)
            yield from self._begin(SessionEvent(event.operation_id, event.turn_id, started), started)
        item = self.item = self._open[key]
        if item.output is not None:
            item.output.finish()
        if event.turn_id is not None:
            kept = replace(kept_item(inner.item), id=item.item.id)
            if event.turn_id == self.turn_id:
                self._fold.apply(replace(event, event=replace(inner, item=kept)))
            else:
                late = EndedItem(kept, inner.started_at_ms or None, inner.at_ms or None, inner.cut)
                self.position = self.position.passed(LateItem(event.turn_id, late))
        yield event
        del self._open[key]

    def _end_turn(self, event: SessionEvent, inner: events.TurnEnded) -> Iterator[SessionEvent]:
        for each in self.open_items():
            if each.turn_id == event.turn_id and not each.goes_on:
                yield from self.take(each.cut(int(inner.ended_at * 1000)))
        self.item = None
        yield event
        if event.turn_id is not None:
            fold = self._fold if self.turn_id == event.turn_id else TurnFold()
            fold.apply(event)
            self.position = self.position.passed(fold)
        if self.turn_id == event.turn_id:
            self.began = None
            self._fold = TurnFold()
