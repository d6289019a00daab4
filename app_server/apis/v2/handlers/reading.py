"""Threads as they are stored and run: one of them, its turns and items by pages, and which are loaded."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from msgspec import Struct

from app_server.apis.services import ConfigSource
from app_server.apis.v2.errors import invalid_cursor, parse_thread_id, thread_not_loaded
from app_server.apis.v2.turns import thread_view, whole_turns
from app_server.conversations.adapter import ConversationStatus
from app_server.core.errors import RolloutNotFound
from app_server.core.rollout.disk import RolloutUnreadable
from app_server.core.rollout.thread_listing import ThreadLists
from app_server.core.rollout.thread_notes import ThreadNotes
from app_server.core.rollout.thread_summary import ThreadSummary, find_thread, read_thread_summary
from app_server.core.rollout.turn_index import TurnIndexes
from app_server.core.rollout.turn_pages import (
    Anchor,
    InvalidCursor,
    ItemRow,
    Page,
    PageRequest,
    TurnHistory,
    open_history,
    parse_cursor,
)
from app_server.core.threads import run_in_thread
from app_server.rpc.errors import invalid_request
from protocol.engine.turns import EndedItem, TurnRecord
from protocol.ids import ConversationId
from protocol.structs import Written, replace
from protocol.v2.fields import SortDirection
from protocol.v2.items import ThreadItem
from protocol.v2.thread import ThreadStatus
from protocol.v2.thread_store import (
    ItemThreadItemsListAnchor,
    ThreadItemEntry,
    ThreadItemsListParams,
    ThreadItemsListResponse,
    ThreadLoadedListParams,
    ThreadLoadedListResponse,
    ThreadReadParams,
    ThreadReadResponse,
    ThreadTurnsListParams,
    ThreadTurnsListResponse,
)
from protocol.v2.turn import Turn, TurnItemsView

PAGE_BYTES = 48 * 1024
"""A page ends early where it would get longer, after one row at least: clients read lines of 64 KiB."""

Result = TypeVar("Result")
Row = TypeVar("Row")


class LiveThreads(Protocol):
    """The threads that are loaded in this server."""

    def loaded(self) -> list[str]:
        """Their ids, in an order that stays."""
        ...

    def status(self, thread_id: str) -> ConversationStatus:
        """Also of one that is not loaded."""
        ...

    def running(self, thread_id: str) -> TurnRecord | None:
        """The turn that runs now, with the items that have ended."""
        ...

    def summary(self, thread_id: str) -> ThreadSummary | None:
        """Of a loaded thread as it was opened; it may not be stored yet, or never be."""
        ...


class Rendering(Struct, frozen=True):
    """What the engine knows, in the shapes of this API."""

    turn: Callable[[TurnRecord, TurnItemsView], Turn]
    items: Callable[[EndedItem], tuple[ThreadItem, ...]]
    """What is shown of an item: itself, and the message that goes with it."""
    status: Callable[[ConversationStatus], ThreadStatus]


class FoundThread(Struct, frozen=True):
    id: ConversationId
    path: Path | None
    """None: it is loaded, and not stored."""
    loaded: ThreadSummary | None


class ReadingContext(Struct, frozen=True):
    config: ConfigSource
    live: LiveThreads
    indexes: TurnIndexes
    rendering: Rendering
    notes: ThreadNotes
    lists: ThreadLists

    async def find(self, thread_id: str) -> FoundThread:
        """Raises RpcError where nothing is known of it."""
        id = parse_thread_id(thread_id)
        loaded = self.live.summary(id)
        if loaded is not None and loaded.path is not None and os.path.exists(loaded.path):
            return FoundThread(id, loaded.path, loaded)
        if loaded is not None and loaded.ephemeral:
            return FoundThread(id, None, loaded)
        try:
            return FoundThread(id, await run_in_thread(find_thread, self.config.home, id), loaded)
        except RolloutNotFound:
            if loaded is None:
                raise thread_not_loaded(id) from None
            return FoundThread(id, None, loaded)

    async def read(self, thread: FoundThread, ask: Callable[[TurnHistory], Result]) -> Result:
        """What `ask` makes of the thread's turns, in a worker thread. Raises RpcError for a bad cursor."""
        running = self.live.running(thread.id)

        def read() -> Result:
            with open_history(thread.path, thread.id, self.indexes, running) as history:
                return ask(history)

        try:
            return await run_in_thread(read)
        except InvalidCursor as error:
            raise invalid_request(str(error), "invalid_params", "cursor") from None

    async def summary(self, thread: FoundThread) -> ThreadSummary:
        """As the file has it; of a loaded thread with what it works with now."""
        loaded = thread.loaded
        if thread.path is None:
            assert loaded is not None
            return loaded
        # Of a loaded thread it is not shown, and the settings need not be read again.
        provider = self.config.load().provider.id if loaded is None else loaded.model.provider
        try:
            stored = await run_in_thread(read_thread_summary, thread.path, provider, self.notes)
        except RolloutUnreadable:
            if loaded is None:
                raise
            return loaded  # its file is being written for the first time
        if loaded is None:
            return stored
        return replace(stored, model=loaded.model, origin=replace(stored.origin, cwd=loaded.origin.cwd))


async def thread_read(context: ReadingContext, params: ThreadReadParams) -> ThreadReadResponse:
    thread = await context.find(params.thread_id)
    turns: tuple[Turn, ...] = ()
    if params.include_turns:
        _require_turns(thread, "includeTurns")
        turns = await context.read(
            thread, lambda history: whole_turns(history.all_turns(), context.rendering.turn)
        )
    status = context.rendering.status(context.live.status(thread.id))
    return ThreadReadResponse(thread=thread_view(await context.summary(thread), status, turns))


async def thread_turns_list(
    context: ReadingContext, params: ThreadTurnsListParams
) -> ThreadTurnsListResponse:
    thread = await context.find(params.thread_id)
    _require_turns(thread, "thread/turns/list")
    newest_first = params.sort_direction is not SortDirection.ASC
    request = PageRequest(anchor=_anchor(params.cursor), limit=params.limit, newest_first=newest_first)
    page = await context.read(thread, lambda history: history.turns(request))
    view = params.items_view or TurnItemsView.SUMMARY
    shown = [context.rendering.turn(record, view) for record in page.rows]
    count = _fitting([(turn,) for turn in shown])
    return ThreadTurnsListResponse(
        data=tuple(shown[:count]),
        next_cursor=_next(page, count, lambda record: record.id),
        backwards_cursor=page.backwards_cursor,
    )


async def thread_items_list(
    context: ReadingContext, params: ThreadItemsListParams
) -> ThreadItemsListResponse:
    thread = await context.find(params.thread_id)
    _require_turns(thread, "thread/items/list")
    newest_first = params.sort_direction is SortDirection.DESC
    request = PageRequest(anchor=_anchor(params.cursor), limit=params.limit, newest_first=newest_first)
    page = await context.read(thread, lambda history: history.items(request, params.turn_id))
    shown = [_entries(context, row, newest_first=newest_first) for row in page.rows]
    count = _fitting(shown)
    return ThreadItemsListResponse(
        data=tuple(entry for entries in shown[:count] for entry in entries),
        next_cursor=_next(page, count, lambda row: row.ended.item.id),
        backwards_cursor=page.backwards_cursor,
    )


async def thread_loaded_list(
    context: ReadingContext, params: ThreadLoadedListParams
) -> ThreadLoadedListResponse:
    """By pages; a cursor is the last id of the page before."""
    ids = context.live.loaded()
    start = 0
    if params.cursor is not None:
        if params.cursor not in ids:
            raise invalid_cursor(params.cursor)
        start = ids.index(params.cursor) + 1
    end = len(ids) if params.limit is None else min(start + max(params.limit, 1), len(ids))
    return ThreadLoadedListResponse(
        data=tuple(ids[start:end]), next_cursor=ids[end - 1] if end < len(ids) else None
    )


def _require_turns(thread: FoundThread, asked: str) -> None:
    """Of an ephemeral thread nothing is stored. Raises RpcError."""
    if thread.loaded is not None and thread.loaded.ephemeral:
        raise invalid_request(f"ephemeral threads do not support {asked}", "ephemeral")


def _anchor(cursor: str | ItemThreadItemsListAnchor | None) -> Anchor | None:
    match cursor:
        case None:
            return None
        case str():
            try:
                return parse_cursor(cursor)
            except InvalidCursor:
                raise invalid_cursor(cursor) from None
        case ItemThreadItemsListAnchor():
            return Anchor(cursor.item_id, included=True)


def _entries(context: ReadingContext, row: ItemRow, *, newest_first: bool) -> tuple[ThreadItemEntry, ...]:
    entries = [
        ThreadItemEntry(
            turn_id=row.turn_id,
            item=item,
            started_at_ms=row.ended.started_ms,
            completed_at_ms=row.ended.ended_ms,
        )
        for item in context.rendering.items(row.ended)
    ]
    return tuple(reversed(entries)) if newest_first else tuple(entries)


def _fitting(rows: Sequence[Sequence[Written]]) -> int:
    """How many of these rows fit into a page; one at least."""
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
