"""What a thread has at the moment at which a client joins it: what was read from the disk a while ago, with what has
ended since (`Position`), and the running turn. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from app_server.engine.storage.pagination import Anchor, Page, with_rows
from app_server.server.apis.v2.turn_shapes import shown_items, shown_turn
from app_server.server.apis.v2.v2_adapter import running_turn
from app_server.server.conversations.live_turn import LiveTurn, Position
from app_server_protocol.engine.events import EndedItem, TurnRecord
from app_server_protocol.v2.turn import Turn, TurnItemsView
from app_server_protocol.values import replace


class NewestIds(Struct, frozen=True):
    """Ids of the last turn and the last item of a thread; None if there is none."""

    turn: str | None = None
    item: str | None = None

    def cursors(self) -> tuple[str | None, str | None]:
        """Return cursors from which a client pages back through the turns and through the items."""
        turn, item = (
            None if id is None else Anchor(id, included=True).cursor() for id in (self.turn, self.item)
        )
        return turn, item


class JoinedThread(Struct, frozen=True):
    """The running turn of a thread, and what has ended since a position at which reading began."""

    live: LiveTurn
    since: Position

    @property
    def newer(self) -> dict[str, TurnRecord]:
        """Turns that were running or had not begun when reading began, by their ids; the running turn is the last."""
        found = {each.id: self._with_late(each) for each in self.since.turns()}
        if (running := self.live.record) is not None:
            found[running.id] = running
        return found

    def turns(self, read: Sequence[Turn]) -> tuple[Turn, ...]:
        """Return all turns with their items, also those that go on. `read` are the turns that were read."""
        newer = {id: shown_turn(each, TurnItemsView.FULL) for id, each in self.newer.items()}
        if (running := running_turn(self.live)) is not None:
            newer[running.id] = running
        return (*(self._shown_with_late(each) for each in read if each.id not in newer), *newer.values())

    def page(self, read: Page[TurnRecord], *, newest_first: bool) -> Page[TurnRecord]:
        """Return a page of turns that was read. One that begins with the newest begins with those of now."""
        newer = self.newer
        rows = [newer.pop(each.id) if each.id in newer else self._with_late(each) for each in read.rows]
        if not newest_first or not newer:
            return with_rows(read, tuple(rows))
        first = Anchor(next(reversed(newer)), included=True).cursor()
        return replace(read, rows=(*reversed(newer.values()), *rows), backwards_cursor=first)

    def newest(self, read: NewestIds) -> NewestIds:
        """Return the ids of the last turn and the last item. `read` are those that were read."""
        for late in self.since.late_items():
            if late.turn_id == read.turn:
                read = replace(read, item=late.ended.item.id)
        for turn in self.newer.values():
            read = NewestIds(turn.id, turn.items[-1].item.id if turn.items else read.item)
        return read

    def _late(self, turn_id: str, known: Iterable[str]) -> list[EndedItem]:
        late = (each.ended for each in self.since.late_items() if each.turn_id == turn_id)
        return [each for each in late if each.item.id not in known]

    def _with_late(self, turn: TurnRecord) -> TurnRecord:
        late = self._late(turn.id, {each.item.id for each in turn.items})
        return replace(turn, items=(*turn.items, *late)) if late else turn

    def _shown_with_late(self, turn: Turn) -> Turn:
        late = self._late(turn.id, {each.id for each in turn.items})
        return (
            replace(turn, items=(*turn.items, *(each for item in late for each in shown_items(item))))
            if late
            else turn
        )
