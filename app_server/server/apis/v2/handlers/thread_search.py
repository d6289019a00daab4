"""Searches in stored threads, which a client can cancel. A streamed search looks for its page in parts: the first
threads that it has found are sent while it looks for the rest, and are the result if it is cancelled.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

import anyio
import msgspec
from msgspec import Struct

from app_server.engine.storage.pagination import FoundThread, ThreadFilter, page_limit
from app_server.server.apis.contexts import ConnectionContext
from app_server.server.apis.router import Route, route
from app_server.server.apis.v2.handlers.thread_reads import list_request, list_sources
from app_server.server.apis.v2.thread_notifier import to_client
from app_server.server.apis.v2.thread_reader import ThreadReader, thread_reader
from app_server_protocol.rpc_errors import invalid_field, invalid_params
from app_server_protocol.v2 import thread_store as wire
from app_server_protocol.v2.fields import RequestId
from app_server_protocol.values import replace

MOST_CHARACTERS = 1024
"""Maximum length of the text that `thread/search` looks for."""
MOST_STREAM_BYTES = 65_536
"""The same for `thread/search/stream`, in bytes of UTF-8."""
FIRST_PARTS: Final = (1, 1, 2, 4)
"""Sizes of the first parts of a streamed page, in threads. They are sent at once if the search takes long."""
QUICK_SECONDS = 0.1
"""Duration of a search that is quick: its client is sent the answer only."""


class RunningSearch(Struct, eq=False):
    """A search that goes on, and what it has found."""

    scope: anyio.CancelScope = msgspec.field(default_factory=anyio.CancelScope)
    found: list[wire.ThreadSearchResult] = msgspec.field(default_factory=list)
    next_cursor: str | None = None
    backwards_cursor: str | None = None

    def answer(self) -> wire.ThreadSearchResponse:
        return wire.ThreadSearchResponse(
            data=tuple(self.found), next_cursor=self.next_cursor, backwards_cursor=self.backwards_cursor
        )


class RunningSearches(dict[RequestId, RunningSearch]):
    """The searches of one client that go on, by the ids of their requests."""


def _running(context: ConnectionContext) -> RunningSearches:
    return context.own.get(RunningSearches, RunningSearches)


async def thread_search(
    context: ConnectionContext, params: wire.ThreadSearchParams
) -> AsyncIterator[wire.ThreadSearchResponse]:
    _require_text(params.search_term)
    if len(params.search_term) > MOST_CHARACTERS:
        message = f"searchTerm has {len(params.search_term)} characters, of at most {MOST_CHARACTERS}"
        raise invalid_field(message, "searchTerm")
    yield await _search(context, params, (), lambda found: None)
    await context.stored.get().read_ahead(messages=True)


async def thread_search_stream(
    context: ConnectionContext, params: wire.ThreadSearchParams
) -> AsyncIterator[wire.ThreadSearchResponse]:
    """Search, and send what is found first if the rest takes long."""
    _require_text(params.search_term)
    if len(params.search_term.strip().encode("utf-8", "replace")) > MOST_STREAM_BYTES:
        message = f"thread/search/stream searchTerm exceeds {MOST_STREAM_BYTES} UTF-8 bytes"
        raise invalid_params(message, "searchTerm")
    id, begun = params.request_id, context.machine.monotonic()
    assert id is not None
    sent = 0

    def tell(found: list[wire.ThreadSearchResult]) -> None:
        nonlocal sent
        if context.machine.monotonic() - begun > QUICK_SECONDS and len(found) > sent < sum(FIRST_PARTS):
            new, sent = tuple(found[sent:]), len(found)
            to_client(context).notify(wire.THREAD_SEARCH_PARTIAL, request_id=id, data=new)

    yield await _search(context, params, FIRST_PARTS, tell)
    await context.stored.get().read_ahead(messages=True)


async def thread_search_cancel(context: ConnectionContext, params: wire.ThreadSearchCancelParams) -> None:
    search = _running(context).get(params.request_id)
    if search is not None:
        search.scope.cancel()


def _require_text(term: str) -> None:
    if not term.strip():
        raise invalid_field("thread/search requires a non-empty searchTerm", "searchTerm")


async def _search(
    context: ConnectionContext,
    params: wire.ThreadSearchParams,
    parts: Sequence[int],
    tell: Callable[[list[wire.ThreadSearchResult]], None],
) -> wire.ThreadSearchResponse:
    """Search until the page is full, or until the search is cancelled. `parts` are the sizes of its first parts. `tell`
    is called with what is found whenever the search goes on after a part. Raises InvalidCursor.
    """
    search, id, running = RunningSearch(next_cursor=params.cursor), params.request_id, _running(context)
    if id is not None:
        running[id] = search
    try:
        with search.scope:
            await _fill(thread_reader(context), params, search, parts, tell)
    finally:
        if id is not None and running.get(id) is search:
            del running[id]
    return search.answer()


async def _fill(
    reader: ThreadReader,
    params: wire.ThreadSearchParams,
    search: RunningSearch,
    parts: Sequence[int],
    tell: Callable[[list[wire.ThreadSearchResult]], None],
) -> None:
    provider = reader.config.load().provider.id
    wanted = ThreadFilter(sources=list_sources(params.source_kinds), default_provider=provider)
    request, rest = list_request(params, wanted), page_limit(params.limit)
    sizes, seen = iter(parts), set[str]()
    while rest:
        size = min(next(sizes, rest), rest)
        part = replace(request, limit=size, cursor=search.next_cursor)
        page = await reader.stored.search(part, params.search_term, reader.live.loaded())
        rows = [each for each in page.rows if each[0].id not in seen]
        search.backwards_cursor = search.backwards_cursor if seen else page.backwards_cursor
        seen |= {summary.id for summary, _ in rows}
        search.found += [_shown(reader, each) for each in rows]
        search.next_cursor = page.next_cursor
        rest -= size
        if page.next_cursor is None:
            return
        if rest:
            tell(search.found)


def _shown(reader: ThreadReader, found: FoundThread) -> wire.ThreadSearchResult:
    summary, words = found
    return wire.ThreadSearchResult(thread=reader.view(summary), snippet=words)


def routes(context: ConnectionContext) -> tuple[Route, ...]:
    return (
        route(wire.THREAD_SEARCH, thread_search, context),
        route(wire.THREAD_SEARCH_STREAM, thread_search_stream, context),
        route(wire.THREAD_SEARCH_CANCEL, thread_search_cancel, context),
        route(wire.THREAD_SEARCH_STREAM_CANCEL, thread_search_cancel, context),
    )
