"""Pages of turns and items: where they begin and how long they are. Pure.

Pages are named by the turn or item where they begin, so a cursor stays good while the conversation goes on.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from typing import Final, Generic, TypeVar

from msgspec import Struct

from app_server.core.errors import ConversationError
from protocol.engine.events import EndedItem

DEFAULT_LIMIT: Final = 25
MAX_LIMIT: Final = 100

Row = TypeVar("Row")


class InvalidCursor(ConversationError):
    """The cursor is none of ours, or what it names is gone."""

    def __init__(self, cursor: str) -> None:
        super().__init__(f"invalid cursor: {cursor[:100]}")


class Anchor(Struct, frozen=True):
    """Where a page begins: at this turn or item, or behind it."""

    id: str
    included: bool = False

    def cursor(self) -> str:
        text = json.dumps([self.id, self.included], separators=(",", ":"))
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def parse_cursor(cursor: str) -> Anchor:
    """Return where a page begins. Raises `InvalidCursor`."""
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


class PageRequest(Struct, frozen=True, kw_only=True):
    anchor: Anchor | None = None
    limit: int | None = None
    newest_first: bool = False


class Page(Struct, Generic[Row], frozen=True):
    rows: tuple[Row, ...]
    next_cursor: str | None = None
    """None: this was the last page."""
    backwards_cursor: str | None = None
    """Begins with the first row, for asking in the other direction."""


class ItemRow(Struct, frozen=True):
    turn_id: str
    ended: EndedItem


def with_rows(page: Page[str], rows: tuple[Row, ...]) -> Page[Row]:
    return Page(rows, page.next_cursor, page.backwards_cursor)


def choose(ids: Sequence[str], request: PageRequest) -> Page[str]:
    """Return the ids of a page out of all ids, which are in the order of the conversation."""
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


class TurnNotFound(ConversationError):
    """The thread has no such turn."""

    def __init__(self, turn_id: str) -> None:
        super().__init__(f"turn not found: {turn_id[:100]}")


class TurnCut(Struct, frozen=True):
    keeps: int | None
    """So many lines come before the cut; None: all of them."""
    turns: int
    """So many turns are behind it."""
