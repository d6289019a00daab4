"""Pages of stored threads by what was said in them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from app_server.core.rollout.message_text import snippet
from app_server.core.rollout.thread_index import ThreadIndex
from app_server.core.rollout.thread_listing import ThreadLists, page_of
from app_server.core.rollout.thread_notes import NotedNow
from app_server.core.rollout.thread_query import ListKey, ListRequest, parse_list_cursor
from app_server.core.rollout.thread_summary import StoredThread, ThreadSummary

Candidates = Iterable[tuple[ListKey, StoredThread, str]]


class SearchPage(Struct, frozen=True):
    found: tuple[tuple[ThreadSummary, str], ...] = ()
    """Each with the words around the first match."""
    next_cursor: str | None = None
    backwards_cursor: str | None = None


def search_threads(lists: ThreadLists, request: ListRequest, term: str, loaded: Sequence[str]) -> SearchPage:
    """Threads with `term` in what was said or in their names. `loaded`: ids of those that change in this process.

    Of the filter only the sources count. Blocks; raises InvalidListCursor.
    """
    start = parse_list_cursor(request.cursor, by_change=request.by_change)
    noted = lists.notes.read()
    wanted = term.casefold()
    also = [*noted.named(lambda name: wanted in name.casefold()), *loaded]

    def ask(index: ThreadIndex) -> SearchPage:
        return _page(request, index.with_messages(request, start, term, also), term, noted)

    return lists.index.get().retried(ask)


def _page(request: ListRequest, candidates: Candidates, term: str, noted: NotedNow) -> SearchPage:
    snippets: dict[str, str] = {}

    def matching() -> Iterator[tuple[ListKey, StoredThread]]:
        for key, stored, messages in candidates:
            found = snippet(messages, term) or snippet(noted.name(key.thread_id) or "", term)
            if found is not None:
                snippets[stored.head.conversation_id] = found
                yield key, stored

    page = page_of(request, matching(), noted)
    found = tuple((summary, snippets[summary.id]) for summary in page.threads)
    return SearchPage(found, page.next_cursor, page.backwards_cursor)
