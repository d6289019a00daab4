"""Pages of the turns and items of one conversation, from its end or its beginning.

Only the turns of a page are read and folded; the index says where they are. The caller passes the record of a running
turn, which replaces what the file has of that turn. A cursor names the turn or item where a page begins, so it stays
valid while the conversation continues.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from app_server.engine.storage.conversation_fold import ConversationFold
from app_server.engine.storage.decode import RolloutDecoder
from app_server.engine.storage.encode import ALWAYS
from app_server.engine.storage.journal import NOTHING, leftover_of
from app_server.engine.storage.line_reader import raw_lines
from app_server.engine.storage.pagination import ItemRow, Page, PageRequest, choose, with_rows
from app_server.engine.storage.record import RevertedRanges, read_record
from app_server.engine.storage.reverts import find_reverts
from app_server.engine.storage.segments import opened_whole
from app_server.engine.storage.turn_fold import ItemIds, TurnFold, WholeHistory
from app_server.engine.storage.turn_index import TurnIndexes, TurnPlaces
from app_server_protocol.engine.events import SessionEvent, TurnRecord, TurnRenamed
from app_server_protocol.engine.items import EnteredReview, UserMessage
from app_server_protocol.values import replace

NO_TURNS: Final = TurnPlaces((), RevertedRanges())


if TYPE_CHECKING:
    from app_server.engine.storage.turn_places import TurnPlace

Result = TypeVar("Result")


class IndexMismatch(Exception):
    """The file has other turns or items than its index says."""


class TurnHistory:
    """The turns of one conversation while its file is open."""

    def __init__(
        self,
        fd: int | None,
        conversation_id: str,
        indexes: TurnIndexes,
        running: TurnRecord | None,
        leftover: Sequence[bytes] = (),
        *,
        is_open: bool = False,
    ) -> None:
        """Read turns from `fd`; None if there is no file. `leftover`: lines that a crash kept out of the file.
        `is_open`: the conversation goes on.
        """
        self._fd, self._conversation_id, self._is_open = fd, conversation_id, is_open
        self._indexes, self._running, self._leftover = indexes, running, leftover

    @property
    def is_stored(self) -> bool:
        """Whether there is a file."""
        return self._fd is not None

    def all_turns(self) -> tuple[TurnRecord, ...]:
        if self._running is None:
            return self.whole().turns
        return self._checked(lambda: self._records(self._ids))

    def whole(self) -> WholeHistory:
        """Return all stored turns, and the ids of all items. The file is read from beginning to end without the index,
        which would need another pass.
        """
        if self._fd is None:
            return WholeHistory((), ItemIds())
        reverted_lines = find_reverts(raw_lines(self._fd), RevertedRanges(), self._fd) or RevertedRanges()
        count = 0
        fold = ConversationFold(self._conversation_id, reverted_lines)
        for raw in raw_lines(self._fd):
            count = raw.number + 1
            if (record := read_record(raw.data)) is not None:
                fold.take(raw.number, record)
        for number, line in enumerate(self._leftover, count):
            if (record := read_record(line)) is not None:
                fold.take(number, record)
        return fold.finish(is_open=self._is_open) or WholeHistory((), ItemIds())

    @cached_property
    def _stored(self) -> TurnPlaces:
        if self._fd is None:
            return NO_TURNS
        return self._indexes.of(self._fd, self._conversation_id, self._leftover, is_open=self._is_open)

    @cached_property
    def _places(self) -> dict[str, TurnPlace | None]:
        """Places of the turns by turn id; None for the running turn."""
        running, places = self._running, self._stored.places
        found: dict[str, TurnPlace | None] = {place.id: place for place in places}
        if running is not None:
            if (replaced := _stored_of(running, places)) is not None:
                del found[replaced]
            found[running.id] = None
        return found

    @property
    def _ids(self) -> tuple[str, ...]:
        return tuple(self._places)

    def ids_from(self, turn_id: str) -> tuple[str, ...]:
        """Return the ids of a turn and of all later ones; none if there is no such turn."""
        ids = self._ids
        return ids[ids.index(turn_id) :] if turn_id in ids else ()

    def turns(self, request: PageRequest) -> Page[TurnRecord]:
        """Return a page of turns. Raises `InvalidCursor`."""

        def read() -> Page[TurnRecord]:
            chosen = choose(self._ids, request)
            return with_rows(chosen, self._records(chosen.rows))

        return self._checked(read)

    def items(self, request: PageRequest, turn_id: str | None = None) -> Page[ItemRow]:
        """Return a page of the items of all turns, or of one turn; an empty page if there is no such turn. Raises
        `InvalidCursor`.
        """
        return self._checked(lambda: self._items(request, turn_id))

    def _items(self, request: PageRequest, turn_id: str | None) -> Page[ItemRow]:
        if turn_id is not None and turn_id not in self._places:
            return Page(())
        turns = self._ids if turn_id is None else (turn_id,)
        where = {item: turn for turn in turns for item in self._item_ids(turn)}
        chosen = choose(tuple(where), request)
        records = self._records(tuple(dict.fromkeys(where[item] for item in chosen.rows)))
        ended = {each.item.id: each for record in records for each in record.items}
        return with_rows(chosen, tuple(ItemRow(where[item], ended[item]) for item in chosen.rows))

    def _checked(self, read: Callable[[], Result]) -> Result:
        """Return the result of `read`; of a second call with a new index, if the index does not fit the file. A program
        may have changed the file in its middle, where nothing is compared.
        """
        try:
            return read()
        except IndexMismatch:
            if self._fd is not None:
                self._indexes.forget(self._fd)
            for each in ("_stored", "_places"):
                self.__dict__.pop(each, None)
            return read()

    def _item_ids(self, turn_id: str) -> Sequence[str]:
        place = self._places[turn_id]
        if place is not None:
            return place.items
        assert self._running is not None
        return [ended.item.id for ended in self._running.items]

    def _records(self, turn_ids: Sequence[str]) -> tuple[TurnRecord, ...]:
        places = [place for id in turn_ids if (place := self._places[id]) is not None]
        stored = self._stored
        found = self._fold(places, stored)
        if self._running is not None:
            found[self._running.id] = self._running
        return tuple(found[id] for id in turn_ids)

    def _fold(self, places: Sequence[TurnPlace], stored: TurnPlaces) -> dict[str, TurnRecord]:
        """Read these turns in one pass; return them by id. Lines between the turns are read, too; they are few, because
        the turns are neighbours.
        """
        if not places or self._fd is None:
            return {}
        first = min(places, key=lambda place: place.begin)
        decoder = RolloutDecoder.at(self._conversation_id, first.state)
        end = max(place.end for place in places)
        names = {name for place in places for name in place.names}
        fold = TurnFold()
        in_file = raw_lines(self._fd, first.number, first.begin, end)
        for raw in chain(in_file, (each for each in stored.behind if first.begin <= each.begin < end)):
            record = None if raw.number in stored.reverted_lines else read_record(raw.data)
            for event in () if record is None else decoder.take(raw.number, record):
                fold.apply(_known(event, names))
        if any(place.to_the_end for place in places):
            fold.apply_all(decoder.finish(is_open=self._is_open))
        records = {record.id: record for record in fold.turns}
        try:
            return {place.id: _with_ids(records[place.id], place.items) for place in places}
        except (KeyError, ValueError):
            raise IndexMismatch from None


@contextmanager
def open_history(
    path: Path | None,
    conversation_id: str,
    indexes: TurnIndexes,
    running: TurnRecord | None = None,
    *,
    is_open: bool = False,
) -> Iterator[TurnHistory]:
    """Open the turns of a conversation. If there is no file, or it does not exist yet, the history has only the running
    turn. `is_open`: the conversation goes on in this process, so everything but the running turn is in the file. Raises
    `RolloutUnreadable`.
    """
    if path is None or not path.exists():
        yield TurnHistory(None, conversation_id, indexes, running)
    else:
        with opened_whole(path) as fd:
            is_open = is_open or running is not None
            leftover = NOTHING if is_open else leftover_of(path)
            yield TurnHistory(fd, conversation_id, indexes, running, leftover.lines(), is_open=is_open)


def _known(event: SessionEvent | TurnRenamed, names: AbstractSet[str]) -> SessionEvent | TurnRenamed:
    """Return the event. A renaming to an id that the index does not give to these turns is replaced by one that keeps
    the id: the index knows all turns, and another turn has that id already.
    """
    if isinstance(event, TurnRenamed) and event.after not in names:
        return TurnRenamed(event.before, event.before)
    return event


def _with_ids(record: TurnRecord, ids: Sequence[str]) -> TurnRecord:
    """Return the turn with unique item ids. These depend on all earlier items, which only the index has read."""
    if all(ended.item.id == id for ended, id in zip(record.items, ids, strict=True)):
        return record
    items = zip(record.items, ids, strict=True)
    return replace(
        record, items=tuple(replace(ended, item=replace(ended.item, id=id)) for ended, id in items)
    )


def _stored_of(running: TurnRecord, places: Sequence[TurnPlace]) -> str | None:
    """Return the id under which the file has the running turn; None if the file has nothing of it. A file without
    identity ends with the running turn, if a line of it is stored.
    """
    if any(place.id == running.id for place in places):
        return running.id
    opened = next((each for each in running.items if isinstance(each.item, ALWAYS) and not each.cut), None)
    last = places[-1] if places else None
    if last is None or opened is None or not isinstance(opened.item, UserMessage | EnteredReview):
        return None
    return last.id if last.implicit and last.to_the_end else None
