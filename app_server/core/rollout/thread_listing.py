"""Pages of stored threads, in either direction, by the time of their start or of their last change, with filters; and
pages by what was said in them.

Files are the truth: what a page shows was read from them, or is as their present state was read before. Where names
give the order and most threads are wanted, a page reads the heads that it comes by. Everything else asks the index for
candidates, which knows all heads; it is loaded then.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from app_server.core.errors import RolloutUnreadable
from app_server.core.lazy import Lazy
from app_server.core.real_path import real_path
from app_server.core.rollout import pages
from app_server.core.rollout.listing import FolderNames, walk
from app_server.core.rollout.summary import (
    NotedNow,
    StoredThread,
    ThreadNotes,
    read_stored_thread,
    snippet,
    summarise,
)

if TYPE_CHECKING:
    from app_server.core.rollout.thread_index import ThreadIndex

log = logging.getLogger(__name__)

MOST_PASSED_BY = 200
"""Heads that a page without the index reads and leaves out, before the index is asked."""

HEADS_AHEAD = 50
REST_AHEAD = 1.0
"""Times as long as reading them took, so that everything else goes on meanwhile."""

Candidates = Iterator[tuple[pages.ListKey, StoredThread, str]]
"""With what was said in them, where that is searched."""


class TooManyPassedBy(Exception):
    """Most threads do not match; the index knows better."""


class ThreadLists:
    """The lists of one home. All methods block; they may be called in several threads."""

    def __init__(self, home: Path, notes: ThreadNotes, now: Callable[[], float]) -> None:
        """`now` gives seconds since 1970."""
        self._home, self.notes = home, notes
        self._names = FolderNames(now)
        self.index: Lazy[ThreadIndex] = Lazy(
            lambda: import_module("app_server.core.rollout.thread_index").ThreadIndex(
                home, now, self._names.newest
            )
        )
        """Few lists need it."""
        self.reads_ahead = False
        """Whether somebody calls `read_ahead` again and again."""
        self.reads_messages = False
        """Whether messages are read ahead, too."""

    def page(self, request: pages.ListRequest) -> pages.Page[pages.ThreadSummary]:
        """Return a page of threads. Raises InvalidCursor. Files that cannot be read are left out."""
        start = pages.parse_list_cursor(request.cursor, by_change=request.by_change)
        noted = self.notes.read()
        if request.follows_names:
            try:
                return page_of(request, self._by_names(request, start), noted)
            except TooManyPassedBy:
                log.debug("most threads do not match; the index is asked")
        named = noted.named(request.filter.is_found) if request.filter.search is not None else []
        return self.index.get().retried(
            lambda index: page_of(request, index.candidates(request, start, named), noted)
        )

    def search(
        self, request: pages.ListRequest, term: str, loaded: Sequence[str]
    ) -> pages.Page[pages.FoundThread]:
        """Return threads with `term` in what was said or in their names. `loaded`: ids of those that change in this
        process. Of the filter only the sources count. Raises InvalidCursor.
        """
        start = pages.parse_list_cursor(request.cursor, by_change=request.by_change)
        noted = self.notes.read()
        wanted = term.casefold()
        also = [*noted.named(lambda name: wanted in name.casefold()), *loaded]
        return self.index.get().retried(
            lambda index: _found_page(request, index.with_messages(request, start, term, also), term, noted)
        )

    def read_ahead(self) -> float | None:
        """Read some heads or messages, so that the first search finds them read. Returns for how many seconds to rest
        then; None where there are no more.
        """
        begun = time.monotonic()
        messages = self.reads_messages
        more = self.index.get().retried(lambda index: index.read_ahead(HEADS_AHEAD, messages=messages))
        if not more and messages == self.reads_messages:
            return None
        return (time.monotonic() - begun) * REST_AHEAD

    def _by_names(self, request: pages.ListRequest, start: pages.ListStart | None) -> Candidates:
        """Yield threads without the index. Raises TooManyPassedBy."""
        passed_by = 0
        for name, path in walk(
            self._home,
            archived=request.archived,
            newest_first=request.newest_first,
            start=start,
            names_in=self._names,
            newest=self._names.newest(self._home, request.archived),
        ):
            if name.conversation_id in request.filter.excluded:
                continue
            try:
                stored = read_stored_thread(path)
            except RolloutUnreadable:
                stored = None
            if stored is not None and matches(request.filter, stored, None):
                yield pages.ListKey(name.started, name.conversation_id), stored, ""
            elif (passed_by := passed_by + 1) > MOST_PASSED_BY:
                raise TooManyPassedBy


def matches(wanted: pages.ThreadFilter, stored: StoredThread, name: str | None) -> bool:
    """Tell whether a filter wants a thread that has this name."""
    head = stored.head
    return (
        stored.has_user_message
        and pages.source_word(head.source) in wanted.sources
        and (wanted.providers is None or (head.provider or wanted.default_provider) in wanted.providers)
        and (wanted.cwds is None or _is_in(head.cwd, wanted.cwds))
        and (wanted.search is None or wanted.is_found(head.preview) or wanted.is_found(name or ""))
    )


def _is_in(cwd: str, wanted: frozenset[str]) -> bool:
    """Return whether a thread's folder is wanted under this name, or under that to which links lead."""
    return os.path.normpath(cwd) in wanted or real_path(cwd) in wanted


def page_of(
    request: pages.ListRequest, candidates: Candidates, noted: NotedNow
) -> pages.Page[pages.ThreadSummary]:
    """Return the first candidates that the filter matches."""
    limit, provider = pages.page_limit(request.limit), request.filter.default_provider
    rows: list[tuple[pages.ListKey, StoredThread]] = []
    more = False
    for key, stored, _ in candidates:
        if not matches(request.filter, stored, noted.name(key.thread_id)):
            continue
        if more := len(rows) == limit:
            break
        rows.append((key, stored))
    if not rows:
        return pages.Page()
    first, last = rows[0][0], rows[-1][0]
    return pages.Page(
        tuple(summarise(stored, provider, noted) for _, stored in rows),
        last.cursor() if more else None,
        first.cursor(included=True),
    )


def _found_page(
    request: pages.ListRequest, candidates: Candidates, term: str, noted: NotedNow
) -> pages.Page[pages.FoundThread]:
    snippets: dict[str, str] = {}

    def matching() -> Candidates:
        for key, stored, messages in candidates:
            found = snippet(messages, term) or snippet(noted.name(key.thread_id) or "", term)
            if found is not None:
                snippets[stored.head.id] = found
                yield key, stored, messages

    page = page_of(request, matching(), noted)
    return pages.with_rows(page, tuple((summary, snippets[summary.id]) for summary in page.rows))
