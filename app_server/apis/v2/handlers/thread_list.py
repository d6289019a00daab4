"""Stored threads by pages: all of them, or those in which something was said."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

from app_server.apis.router import Route, route
from app_server.apis.v2.errors import parse_thread_id
from app_server.apis.v2.loaded_threads import ReadingContext
from app_server.apis.v2.services import ThreadServices
from app_server.apis.v2.settings import thread_status
from app_server.apis.v2.turns import thread_view
from app_server.core.rollout.pages import ListRequest, ThreadFilter, ThreadSummary
from app_server.rpc.errors import invalid_field, invalid_params
from protocol.ids import sound_path
from protocol.v2 import thread_store as wire
from protocol.v2.thread import Thread

INTERACTIVE = ("cli", "vscode")
"""What is listed where the request names no kinds."""

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
"""The stored sources of each kind."""

MOST_EXCLUDED = 100


async def thread_list(
    context: ReadingContext, params: wire.ThreadListParams
) -> AsyncIterator[wire.ThreadListResponse]:
    if params.sort_key == "section_position":
        raise invalid_field("threads have no sections to sort by", "sortKey")
    if params.originators:
        raise invalid_params("originator filtering is not supported: leave `originators` out", "originators")
    if params.parent_thread_id is not None or params.ancestor_thread_id is not None:
        yield wire.ThreadListResponse(data=())  # no thread here begins others
        return
    wanted = ThreadFilter(
        sources=list_sources(params.source_kinds),
        default_provider=(provider := context.config.load().provider.id),
        providers=frozenset((provider,) if params.model_providers is None else params.model_providers)
        or None,
        cwds=await _cwds(context, params),
        excluded=_excluded(params),
        search=params.search_term or None,
    )
    page = await context.stored.list(_request(params, wanted))
    yield wire.ThreadListResponse(
        data=tuple(_shown(context, each) for each in page.rows),
        next_cursor=page.next_cursor,
        backwards_cursor=page.backwards_cursor,
    )
    if page.next_cursor is not None:
        await context.stored.read_ahead()


def list_sources(kinds: tuple[wire.ThreadSourceKind, ...] | None) -> frozenset[str]:
    """Return the stored sources of these kinds, or of the usual ones."""
    return frozenset(source for kind in kinds or INTERACTIVE for source in SOURCES[kind])


def _shown(context: ReadingContext, summary: ThreadSummary) -> Thread:
    return thread_view(summary, thread_status(context.live.status(summary.id)))


def _request(params: wire.ThreadListParams | wire.ThreadSearchParams, wanted: ThreadFilter) -> ListRequest:
    return ListRequest(
        filter=wanted,
        archived=bool(params.archived),
        by_change=params.sort_key in ("updated_at", "recency_at"),
        newest_first=params.sort_direction != "asc",
        limit=params.limit,
        cursor=params.cursor,
    )


async def _cwds(context: ReadingContext, params: wire.ThreadListParams) -> frozenset[str] | None:
    """Return the directories as threads may have them: as they are named, and without links."""
    if params.cwd is None:
        return None
    named = (params.cwd,) if isinstance(params.cwd, str) else params.cwd
    try:
        named = tuple(map(sound_path, named))
    except ValueError as error:
        raise invalid_field(f"invalid cwd: {error}", "cwd") from None
    return await context.stored.folders([os.path.join(context.config.cwd, each) for each in named])


def _excluded(params: wire.ThreadListParams) -> frozenset[str]:
    ids = params.excluded_thread_ids or ()
    if len(ids) > MOST_EXCLUDED:
        message = f"at most {MOST_EXCLUDED} threads can be excluded, not {len(ids)}"
        raise invalid_field(message, "excludedThreadIds")
    return frozenset(parse_thread_id(each, "excludedThreadIds") for each in ids)


MOST_CHARACTERS = 1024


async def thread_search(
    context: ReadingContext, params: wire.ThreadSearchParams
) -> AsyncIterator[wire.ThreadSearchResponse]:
    term = params.search_term
    if not term.strip():
        raise invalid_field("thread/search requires search_term", "searchTerm")
    if len(term) > MOST_CHARACTERS:
        message = f"searchTerm has {len(term)} characters, of at most {MOST_CHARACTERS}"
        raise invalid_field(message, "searchTerm")
    provider = context.config.load().provider.id
    wanted = ThreadFilter(sources=list_sources(params.source_kinds), default_provider=provider)
    page = await context.stored.search(_request(params, wanted), term, context.live.loaded())
    yield wire.ThreadSearchResponse(
        data=tuple(
            wire.ThreadSearchResult(thread=_shown(context, each), snippet=words) for each, words in page.rows
        ),
        next_cursor=page.next_cursor,
        backwards_cursor=page.backwards_cursor,
    )
    await context.stored.read_ahead(messages=True)


def routes(services: ThreadServices) -> tuple[Route, ...]:
    reading = services.threads.get().reading
    return (
        route(wire.THREAD_LIST, thread_list, reading),
        route(wire.THREAD_SEARCH, thread_search, reading),
    )
