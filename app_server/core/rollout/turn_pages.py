"""Turns and items of one conversation by pages, from its end or its beginning.

Reads and folds the turns of a page only; where they are is known from the index. What is told of a turn that runs is
handed in, and stands for what the file has of it. Pages are named by the turn or item where they begin, so a cursor
stays good while the conversation goes on.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final, Generic, TypeVar

from app_server.core.errors import ConversationError
from app_server.core.rollout.disk import describe, open_for_reading
from app_server.core.rollout.rollout_errors import RolloutUnreadable
from app_server.core.rollout.stored_events import ALWAYS
from app_server.core.rollout.turn_fold import TurnFold
from app_server.core.rollout.turn_index import TurnIndexes, TurnPlace
from app_server.core.rollout.turn_lines import raw_lines, turn_line
from protocol.engine.items import EnteredReview, UserMessage
from protocol.engine.turns import EndedItem, TurnRecord
from protocol.records import dataclass

DEFAULT_LIMIT: Final = 25
MAX_LIMIT: Final = 100

Row = TypeVar("Row")


class InvalidCursor(ConversationError):
    """The cursor is none of ours, or what it names is gone."""

    def __init__(self, cursor: str) -> None:
        super().__init__(f"invalid cursor: {cursor[:100]}")


@dataclass(frozen=True, slots=True)
class Anchor:
    """Where a page begins: at this turn or item, or behind it."""

    id: str
    included: bool = False

    def cursor(self) -> str:
        text = json.dumps([self.id, self.included], separators=(",", ":"))
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def parse_cursor(cursor: str) -> Anchor:
    """Raises `InvalidCursor`."""
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        value = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (ValueError, binascii.Error, RecursionError):
        raise InvalidCursor(cursor) from None
    match value:
        case [str(id), bool(included)]:
            return Anchor(id, included)
        case _:
            raise InvalidCursor(cursor)


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRequest:
    anchor: Anchor | None = None
    limit: int | None = None
    newest_first: bool = False


@dataclass(frozen=True, slots=True)
class Page(Generic[Row]):
    rows: tuple[Row, ...]
    next_cursor: str | None = None
    """None: this was the last page."""
    backwards_cursor: str | None = None
    """Begins with the first row, for asking in the other direction."""


@dataclass(frozen=True, slots=True)
class ItemRow:
    turn_id: str
    ended: EndedItem


class TurnHistory:
    """The turns of one conversation while its file is open."""

    def __init__(self, fd: int | None, places: Sequence[TurnPlace], running: TurnRecord | None) -> None:
        self._fd, self._running = fd, running
        stored = {place.id: place for place in places}
        if running is not None and (replaced := _stored_of(running, places)) is not None:
            del stored[replaced]
        self._places: dict[str, TurnPlace | None] = {**stored}
        if running is not None:
            self._places[running.id] = None
        self._ids = tuple(self._places)

    def all_turns(self) -> tuple[TurnRecord, ...]:
        return self._records(self._ids)

    def turns(self, request: PageRequest) -> Page[TurnRecord]:
        """Raises `InvalidCursor`."""
        chosen = _choose(self._ids, request)
        return _with_rows(chosen, self._records(chosen.rows))

    def items(self, request: PageRequest, turn_id: str | None = None) -> Page[ItemRow]:
        """Items of all turns, or of one; of none where there is no such turn. Raises `InvalidCursor`."""
        if turn_id is not None and turn_id not in self._places:
            return Page(())
        turns = self._ids if turn_id is None else (turn_id,)
        where = {item: turn for turn in turns for item in self._item_ids(turn)}
        chosen = _choose(tuple(where), request)
        records = self._records(tuple(dict.fromkeys(where[item] for item in chosen.rows)))
        ended = {each.item.id: each for record in records for each in record.items}
        return _with_rows(chosen, tuple(ItemRow(where[item], ended[item]) for item in chosen.rows))

    def _item_ids(self, turn_id: str) -> Sequence[str]:
        place = self._places[turn_id]
        if place is not None:
            return place.items
        assert self._running is not None
        return [ended.item.id for ended in self._running.items]

    def _records(self, turn_ids: Sequence[str]) -> tuple[TurnRecord, ...]:
        places = [place for id in turn_ids if (place := self._places[id]) is not None]
        found = {} if self._fd is None else _fold(self._fd, places)
        if self._running is not None:
            found[self._running.id] = self._running
        return tuple(found[id] for id in turn_ids)


@contextmanager
def open_history(
    path: Path | None, conversation_id: str, indexes: TurnIndexes, running: TurnRecord | None = None
) -> Iterator[TurnHistory]:
    """Without a file, or with one that is not there yet, there is what runs alone. Raises `RolloutUnreadable`."""
    fd = None
    try:
        if path is not None:
            try:
                fd = open_for_reading(path)
            except FileNotFoundError:
                path = None
        yield TurnHistory(fd, () if fd is None else indexes.of(fd, conversation_id), running)
    except OSError as error:
        raise RolloutUnreadable(f"{path}: {describe(error)}") from None
    finally:
        if fd is not None:
            os.close(fd)


def _with_rows(page: Page[str], rows: tuple[Row, ...]) -> Page[Row]:
    return Page(rows, page.next_cursor, page.backwards_cursor)


def _choose(ids: Sequence[str], request: PageRequest) -> Page[str]:
    """The ids of a page out of all ids, which are in the order of the conversation."""
    limit = min(max(DEFAULT_LIMIT if request.limit is None else request.limit, 1), MAX_LIMIT)
    order = ids[::-1] if request.newest_first else ids
    start = 0
    if request.anchor is not None:
        try:
            start = order.index(request.anchor.id) + (not request.anchor.included)
        except ValueError:
            raise InvalidCursor(request.anchor.cursor()) from None
    chosen = tuple(order[start : start + limit])
    more = start + limit < len(order)
    return Page(
        chosen,
        Anchor(chosen[-1]).cursor() if more else None,
        Anchor(chosen[0], included=True).cursor() if chosen else None,
    )


def _fold(fd: int, places: Sequence[TurnPlace]) -> dict[str, TurnRecord]:
    """These turns, by id. What lies between them is read too, and is little: they are neighbours."""
    if not places:
        return {}
    first = min(places, key=lambda place: place.begin)
    reader, fold = first.reader.copy(), TurnFold()
    for raw in raw_lines(fd, first.number, first.begin, max(place.end for place in places)):
        line = turn_line(raw)
        if line is not None:
            fold.apply_all(reader.read_line(*line))
    if any(place.to_the_end for place in places):
        fold.apply_all(reader.finish())
    records = {record.id: record for record in fold.turns}
    return {place.id: _with_ids(records[place.id], place.items) for place in places}


def _with_ids(record: TurnRecord, ids: Sequence[str]) -> TurnRecord:
    """Ids depend on all items before, which only the index has seen."""
    items = zip(record.items, ids, strict=True)
    return replace(
        record, items=tuple(replace(ended, item=replace(ended.item, id=id)) for ended, id in items)
    )


def _stored_of(running: TurnRecord, places: Sequence[TurnPlace]) -> str | None:
    """Under which id the file has the turn that runs. A file without identity ends with it, if it has words of it."""
    if any(place.id == running.id for place in places):
        return running.id
    opened = next((each for each in running.items if isinstance(each.item, ALWAYS) and not each.cut), None)
    last = places[-1] if places else None
    if last is None or opened is None or not isinstance(opened.item, UserMessage | EnteredReview):
        return None
    return last.id if last.implicit and last.to_the_end else None
