"""Threads as they are stored and run: one of them, its turns and items by pages, and which are loaded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from app_server.apis.router import Route, route
from app_server.apis.v2.errors import invalid_cursor
from app_server.apis.v2.loaded_threads import FoundThread, ReadingContext
from app_server.apis.v2.services import ThreadServices
from app_server.apis.v2.turns import shown_items, shown_turn, whole_turns
from app_server.core.rollout.pages import Anchor, ItemRow, Page, PageRequest, parse_cursor
from app_server.rpc.errors import invalid_request
from protocol.structs import Written
from protocol.v2 import thread_store as wire
from protocol.v2.fields import ByPages
from protocol.v2.turn import Turn, TurnItemsView

PAGE_BYTES = 48 * 1024
"""A page ends early where it would get longer, after one row at least: clients read lines of 64 KiB."""

Row = TypeVar("Row")


async def thread_read(context: ReadingContext, params: wire.ThreadReadParams) -> wire.ShownThread:
    thread = await context.find(params.thread_id)
    turns: tuple[Turn, ...] = ()
    if params.include_turns:
        _require_turns(thread, "includeTurns")
        turns = await context.read(thread, lambda history: whole_turns(history.all_turns()))
    return wire.ShownThread(thread=await context.shown(thread, turns))


async def thread_turns_list(
    context: ReadingContext, params: wire.ThreadTurnsListParams
) -> wire.ThreadTurnsListResponse:
    thread = await context.find(params.thread_id)
    _require_turns(thread, "thread/turns/list")
    newest_first = params.sort_direction != "asc"
    request = PageRequest(anchor=_anchor(params.cursor), limit=params.limit, newest_first=newest_first)
    page = await context.read(thread, lambda history: history.turns(request))
    view = params.items_view or TurnItemsView.SUMMARY
    shown = [shown_turn(record, view) for record in page.rows]
    count = _fitting([(turn,) for turn in shown])
    return wire.ThreadTurnsListResponse(
        data=tuple(shown[:count]),
        next_cursor=_next(page, count, lambda record: record.id),
        backwards_cursor=page.backwards_cursor,
    )


async def thread_items_list(
    context: ReadingContext, params: wire.ThreadItemsListParams
) -> wire.ThreadItemsListResponse:
    thread = await context.find(params.thread_id)
    _require_turns(thread, "thread/items/list")
    newest_first = params.sort_direction == "desc"
    request = PageRequest(anchor=_anchor(params.cursor), limit=params.limit, newest_first=newest_first)
    page = await context.read(thread, lambda history: history.items(request, params.turn_id))
    shown = [_entries(row, newest_first=newest_first) for row in page.rows]
    count = _fitting(shown)
    return wire.ThreadItemsListResponse(
        data=tuple(entry for entries in shown[:count] for entry in entries),
        next_cursor=_next(page, count, lambda row: row.ended.item.id),
        backwards_cursor=page.backwards_cursor,
    )


async def thread_loaded_list(context: ReadingContext, params: ByPages) -> wire.ThreadLoadedListResponse:
    """List loaded threads by pages; a cursor is the last id of the page before."""
    ids = context.live.loaded()
    start = 0
    if params.cursor is not None:
        if params.cursor not in ids:
            raise invalid_cursor(params.cursor)
        start = ids.index(params.cursor) + 1
    end = len(ids) if params.limit is None else min(start + max(params.limit, 1), len(ids))
    return wire.ThreadLoadedListResponse(
        data=tuple(ids[start:end]), next_cursor=ids[end - 1] if end < len(ids) else None
    )


def _require_turns(thread: FoundThread, asked: str) -> None:
    """Refuse an ephemeral thread, of which nothing is stored. Raises RpcError."""
    if thread.loaded is not None and thread.loaded.ephemeral:
        raise invalid_request(f"ephemeral threads do not support {asked}", "ephemeral")


def _anchor(cursor: str | wire.ItemThreadItemsListAnchor | None) -> Anchor | None:
    match cursor:
        case None:
            return None
        case str():
            return parse_cursor(cursor)
        case wire.ItemThreadItemsListAnchor():
            return Anchor(cursor.item_id, included=True)


def _entries(row: ItemRow, *, newest_first: bool) -> tuple[wire.ThreadItemEntry, ...]:
    entries = [
        wire.ThreadItemEntry(
            turn_id=row.turn_id,
            item=item,
            started_at_ms=row.ended.started_ms,
            completed_at_ms=row.ended.ended_ms,
        )
        for item in shown_items(row.ended)
    ]
    return tuple(reversed(entries)) if newest_first else tuple(entries)


def _fitting(rows: Sequence[Sequence[Written]]) -> int:
    """Return how many of these rows fit into a page; one at least."""
    size = 0
    for count, row in enumerate(rows):
        size += sum(len(entry.to_json()) for entry in row)
        if size > PAGE_BYTES and count > 0:
            return count
    return len(rows)


def _next(page: Page[Row], count: int, id_of: Callable[[Row], str]) -> str | None:
    if count == len(page.rows):
        return page.next_cursor
    return Anchor(id_of(page.rows[count - 1])).cursor()


def routes(services: ThreadServices) -> tuple[Route, ...]:
    reading = services.threads.get().reading
    return (
        route(wire.THREAD_READ, thread_read, reading),
        route(wire.THREAD_TURNS_LIST, thread_turns_list, reading),
        route(wire.THREAD_ITEMS_LIST, thread_items_list, reading),
        route(wire.THREAD_LOADED_LIST, thread_loaded_list, reading),
    )
