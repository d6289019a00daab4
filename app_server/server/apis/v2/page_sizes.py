"""Pages of turns and items within the size of a line that clients read. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from app_server.engine.storage.pagination import Anchor, Page
from app_server.server.apis.v2.turn_shapes import shown_turn
from app_server_protocol.encoding import JsonSerializable
from app_server_protocol.engine.events import TurnRecord
from app_server_protocol.v2.thread_open import TurnsPage
from app_server_protocol.v2.turn import TurnItemsView

PAGE_BYTES: Final = 48 * 1024
"""Size above which a page ends early, in bytes. A page has at least one row. Clients read lines of 64 KiB."""

Row = TypeVar("Row")


def turns_page(page: Page[TurnRecord], view: TurnItemsView | None) -> TurnsPage:
    """Return the turns of a page as far as they fit into a line. `view` is None if the client named none, which means
    a summary.
    """
    shown = [shown_turn(record, view or TurnItemsView.SUMMARY) for record in page.rows]
    count = fitting([(turn,) for turn in shown])
    return TurnsPage(
        data=tuple(shown[:count]),
        next_cursor=next_cursor(page, count, lambda record: record.id),
        backwards_cursor=page.backwards_cursor,
    )


def fitting(rows: Sequence[Sequence[JsonSerializable]]) -> int:
    """Return how many of these rows fit into a page; at least one."""
    size = 0
    for count, row in enumerate(rows):
        size += sum(len(entry.to_json()) for entry in row)
        if size > PAGE_BYTES and count > 0:
            return count
    return len(rows)


def next_cursor(page: Page[Row], count: int, id_of: Callable[[Row], str]) -> str | None:
    """Return the cursor after the first `count` rows of a page; None if no row follows."""
    if count == len(page.rows):
        return page.next_cursor
    return Anchor(id_of(page.rows[count - 1])).cursor()
