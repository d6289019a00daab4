"""Stored and loaded threads: lists by pages, one thread, its turns and items by pages, and the list of those that are
loaded.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence

from app_server.engine.storage.pagination import (
    Anchor,
    ItemRow,
    ListRequest,
    PageRequest,
    ThreadFilter,
    parse_cursor,
)
from app_server.server.apis.contexts import ConnectionContext
from app_server.server.apis.router import Route, route
from app_server.server.apis.v2.page_sizes import fitting, next_cursor, turns_page
from app_server.server.apis.v2.thread_reader import FoundThread, thread_reader
from app_server.server.apis.v2.turn_shapes import shown_items, whole_turns
from app_server.server.apis.v2.v2_errors import invalid_cursor
from app_server_protocol.ids import parse_conversation_id, sound_path
from app_server_protocol.rpc_errors import invalid_field, invalid_params, invalid_request
from app_server_protocol.v2 import thread_store as wire
from app_server_protocol.v2.fields import ByPages
from app_server_protocol.v2.turn import Turn


async def thread_read(context: ConnectionContext, params: wire.ThreadReadParams) -> wire.ShownThread:
    reader = thread_reader(context)
    thread = await reader.find(params.thread_id)
    turns: tuple[Turn, ...] = ()
    if params.include_turns:
        _require_turns(thread, "includeTurns")
        turns = await reader.read(thread, lambda history: whole_turns(history.all_turns()))
    return wire.ShownThread(thread=await reader.shown(thread, turns))


async def thread_turns_list(
    context: ConnectionContext, params: wire.ThreadTurnsListParams
) -> wire.ThreadTurnsListResponse:
    reader = thread_reader(context)
    thread = await reader.find(params.thread_id)
    _require_turns(thread, "thread/turns/list")
    newest_first = params.sort_direction != "asc"
    request = PageRequest(anchor=_anchor(params.cursor), limit=params.limit, newest_first=newest_first)
    page = turns_page(await reader.read(thread, lambda history: history.turns(request)), params.items_view)
    return wire.ThreadTurnsListResponse(
        data=page.data, next_cursor=page.next_cursor, backwards_cursor=page.backwards_cursor
    )


async def thread_items_list(
    context: ConnectionContext, params: wire.ThreadItemsListParams
) -> wire.ThreadItemsListResponse:
    reader = thread_reader(context)
    thread = await reader.find(params.thread_id)
    _require_turns(thread, "thread/items/list")
    newest_first = params.sort_direction == "desc"
    request = PageRequest(anchor=_anchor(params.cursor), limit=params.limit, newest_first=newest_first)
    page = await reader.read(thread, lambda history: history.items(request, params.turn_id))
    shown = [_entries(row, newest_first=newest_first) for row in page.rows]
    count = fitting(shown)
    return wire.ThreadItemsListResponse(
        data=tuple(entry for entries in shown[:count] for entry in entries),
        next_cursor=next_cursor(page, count, lambda row: row.ended.item.id),
        backwards_cursor=page.backwards_cursor,
    )


async def thread_loaded_list(context: ConnectionContext, params: ByPages) -> wire.ThreadLoadedListResponse:
    """List loaded threads by pages; the cursor is the last id of the page before."""
    ids = thread_reader(context).live.loaded()
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
    """Check that the thread stores its turns. Raises RpcError for an ephemeral thread."""
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


INTERACTIVE = ("cli", "vscode")
"""Kinds of threads that are listed if the request names none."""

SOURCES = {
    "cli": ("cli",),
    "vscode": ("vscode",),
    "exec": ("exec",),
    "appServer": ("mcp",),
    "subAgent": ("subagent_review", "subagent_compact", "subagent_thread_spawn", "subagent_other"),
    "subAgentReview": ("subagent_review",),
    "subAgentCompact": ("subagent_compact",),
    "subAgentThreadSpawn": ("subagent_thread_spawn",),
    "subAgentOther": ("subagent_other",),
    "unknown": ("unknown",),
}
"""Stored sources of the threads of each kind."""

MOST_LISTED = 100
"""Maximum number of ids by which one request includes or excludes threads."""


async def thread_list(
    context: ConnectionContext, params: wire.ThreadListParams
) -> AsyncIterator[wire.ThreadListResponse]:
    if params.sort_key == "section_position":
        raise invalid_field("threads have no sections to sort by", "sortKey")
    if params.originators:
        raise invalid_params("originator filtering is not supported: leave `originators` out", "originators")
    if params.parent_thread_id is not None or params.ancestor_thread_id is not None:
        yield wire.ThreadListResponse(data=())  # no thread here begins other threads
        return
    included = _included(params)
    if included is not None and not included:
        yield wire.ThreadListResponse(data=())
        return
    wanted = ThreadFilter(
        included=included,
        sources=list_sources(params.source_kinds),
        default_provider=(provider := context.config.load().provider.id),
        providers=frozenset((provider,) if params.model_providers is None else params.model_providers)
        or None,
        cwds=await _cwds(context, params),
        excluded=_excluded(params),
        search=params.search_term or None,
    )
    reader, stored = thread_reader(context), context.stored.get()
    page = await stored.list(list_request(params, wanted))
    yield wire.ThreadListResponse(
        data=tuple(reader.view(each) for each in page.rows),
        next_cursor=page.next_cursor,
        backwards_cursor=page.backwards_cursor,
    )
    if page.next_cursor is not None:
        await stored.read_ahead()


def list_sources(kinds: tuple[wire.ThreadSourceKind, ...] | None) -> frozenset[str]:
    """Return the stored sources of these kinds; of the interactive kinds if none are named."""
    return frozenset(source for kind in kinds or INTERACTIVE for source in SOURCES[kind])


def list_request(
    params: wire.ThreadListParams | wire.ThreadSearchParams, wanted: ThreadFilter
) -> ListRequest:
    return ListRequest(
        filter=wanted,
        archived=bool(params.archived),
        by_change=params.sort_key in ("updated_at", "recency_at"),
        newest_first=params.sort_direction != "asc",
        limit=params.limit,
        cursor=params.cursor,
    )


async def _cwds(context: ConnectionContext, params: wire.ThreadListParams) -> frozenset[str] | None:
    """Return the directories in both forms that threads may have: as named, and with symbolic links resolved."""
    if params.cwd is None:
        return None
    named = (params.cwd,) if isinstance(params.cwd, str) else params.cwd
    try:
        named = tuple(map(sound_path, named))
    except ValueError as error:
        raise invalid_field(f"invalid cwd: {error}", "cwd") from None
    return await context.stored.get().folders([os.path.join(context.config.cwd, each) for each in named])


def _included(params: wire.ThreadListParams) -> frozenset[str] | None:
    if params.included_thread_ids is None:
        return None
    return _thread_ids(params.included_thread_ids, "includedThreadIds", "included")


def _excluded(params: wire.ThreadListParams) -> frozenset[str]:
    return _thread_ids(params.excluded_thread_ids or (), "excludedThreadIds", "excluded")


def _thread_ids(ids: Sequence[str], field: str, what: str) -> frozenset[str]:
    """Return the thread ids in a list. Raises RpcError with the code that clients expect of a list."""
    if len(ids) > MOST_LISTED:
        raise invalid_params(f"{field} accepts at most {MOST_LISTED} entries", field)
    parsed = {each: parse_conversation_id(each) for each in ids}
    wrong = next((each for each, id in parsed.items() if id is None), None)
    if wrong is not None:
        raise invalid_params(f"invalid {what} thread id: {wrong[:100]!r} is no UUID", field)
    return frozenset(id for id in parsed.values() if id is not None)


def routes(context: ConnectionContext) -> tuple[Route, ...]:
    return (
        route(wire.THREAD_READ, thread_read, context),
        route(wire.THREAD_TURNS_LIST, thread_turns_list, context),
        route(wire.THREAD_ITEMS_LIST, thread_items_list, context),
        route(wire.THREAD_LOADED_LIST, thread_loaded_list, context),
        route(wire.THREAD_LIST, thread_list, context),
    )
