"""`thread/search`: stored threads by what was said in them."""

from __future__ import annotations

from app_server.apis.result import HandlerResult
from app_server.apis.v2.handlers.reading import ReadingContext
from app_server.apis.v2.handlers.thread_list import list_sources, read_lists_ahead
from app_server.apis.v2.thread_view import thread_view
from app_server.core.rollout.thread_query import InvalidListCursor, ListRequest, ThreadFilter
from app_server.core.rollout.thread_search import search_threads
from app_server.core.threads import run_in_thread
from app_server.rpc.errors import invalid_request
from protocol.v2.fields import SortDirection
from protocol.v2.thread_store import (
    ThreadSearchParams,
    ThreadSearchResponse,
    ThreadSearchResult,
    ThreadSearchSortKey,
)

MOST_CHARACTERS = 1024


async def thread_search(
    context: ReadingContext, params: ThreadSearchParams
) -> HandlerResult[ThreadSearchResponse]:
    term = params.search_term
    if not term.strip():
        raise invalid_request("thread/search requires search_term", "invalid_params", "searchTerm")
    if len(term) > MOST_CHARACTERS:
        message = f"searchTerm has {len(term)} characters, of at most {MOST_CHARACTERS}"
        raise invalid_request(message, "invalid_params", "searchTerm")
    request = ListRequest(
        filter=ThreadFilter(
            sources=list_sources(params.source_kinds), default_provider=context.config.load().provider.id
        ),
        archived=bool(params.archived),
        by_change=params.sort_key in (ThreadSearchSortKey.UPDATED_AT, ThreadSearchSortKey.RECENCY_AT),
        newest_first=params.sort_direction is not SortDirection.ASC,
        limit=params.limit,
        cursor=params.cursor,
    )
    lists = context.lists
    try:
        page = await run_in_thread(
            search_threads, lists, request, term, context.live.loaded(), abandon_on_cancel=True
        )
    except InvalidListCursor as error:
        raise invalid_request(str(error), "invalid_params", "cursor") from None
    response = ThreadSearchResponse(
        data=tuple(
            ThreadSearchResult(
                thread=thread_view(each, context.rendering.status(context.live.status(each.id))),
                snippet=words,
            )
            for each, words in page.found
        ),
        next_cursor=page.next_cursor,
        backwards_cursor=page.backwards_cursor,
    )

    async def read_ahead() -> None:
        lists.reads_messages = True
        await read_lists_ahead(lists)

    return HandlerResult(response, read_ahead)
