"""Pages of stored threads, in either direction, sorted by start or by last change and filtered; and pages of a
full-text search in their messages.

Files are the source of truth: every fact on a page was read from a file in its present state. The index provides the
candidates, because it has all heads. It is loaded on first use. Until it has read all heads, a page whose order is that
of the file names, and that most threads match, reads the heads of the files that it passes.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from app_server.engine.storage import pagination, thread_index
from app_server.engine.storage.rollout_files import FolderNames, walk
from app_server.engine.storage.thread_summary import (
    MetadataStore,
    StoredThread,
    ThreadMetadata,
    read_stored_thread,
    snippet,
    summarise,
)
from app_server.engine.support.engine_errors import RolloutUnreadable
from app_server.engine.support.lazy import Lazy
from app_server.engine.support.real_path import real_path

if TYPE_CHECKING:
    from app_server.engine.storage.index_file import IndexFile
    from app_server.engine.storage.thread_index import ThreadIndex

log = logging.getLogger(__name__)

MOST_PASSED_BY = 200
"""Maximum number of heads that do not match and that a page reads without the index. After that the page is read from
the index.
"""

HEADS_AHEAD = 50
REST_AHEAD = 1.0
"""Length of a pause as a multiple of the time that reading took, so that other work continues."""

Candidates = Iterator[tuple[pagination.ListKey, StoredThread, str]]
"""Threads with their sort keys, and with their messages if these are searched."""


class TooManyPassedBy(Exception):
    """Most threads do not match, so the index is faster."""


class ThreadLists:
    """Lists of the threads of one home. All methods block. Thread-safe."""

    def __init__(
        self,
        home: Path,
        notes: MetadataStore,
        now: Callable[[], float],
        file: Lazy[IndexFile] | None = None,
    ) -> None:
        """Begin with an empty cache. `now` returns seconds since 1970. `file` is the index of the home, if others in
        this process use it.
        """
        self._home, self.notes = home, notes
        self._names = FolderNames(now)
        self.index: Lazy[ThreadIndex] = Lazy(
            lambda: thread_index.ThreadIndex(home, now, file.get() if file else None, self._names.newest)
        )
        """Index of threads, loaded on first use: few lists need it."""
        self._is_read = False
        """Whether the index has the heads of all threads outside of the archive."""
        self.reads_ahead = False
        """Whether a caller is calling `read_ahead` in a loop."""
        self.reads_messages = False
        """Whether messages are read ahead, too."""

    def page(self, request: pagination.ListRequest) -> pagination.Page[pagination.ThreadSummary]:
        """Return a page of threads. Files that cannot be read are left out. Raises InvalidCursor."""
        start = pagination.parse_list_cursor(request.cursor, by_change=request.by_change)
        noted = self.notes.read()
        if request.follows_names and self._is_read and not request.archived:
            page = self.index.get().unless_busy(lambda index: self._indexed(index, request, start, noted))
            if page is not None:
                return page
        if request.follows_names:
            try:
                return page_of(request, self._by_names(request, start), noted)
            except TooManyPassedBy:
                log.debug("most threads do not match; the index is asked")
        return self.index.get().retried(lambda index: self._indexed(index, request, start, noted))

    def _indexed(
        self,
        index: ThreadIndex,
        request: pagination.ListRequest,
        start: pagination.ListStart | None,
        noted: ThreadMetadata,
    ) -> pagination.Page[pagination.ThreadSummary]:
        """Return a page from the index. Raises IndexReplaced and `sqlite3.Error`."""
        named = noted.named(request.filter.is_found) if request.filter.search is not None else []
        found = index.candidates(request, start, named)
        return page_of(request, matching(request.filter, found, noted), noted)

    def search(
        self, request: pagination.ListRequest, term: str, loaded: Sequence[str]
    ) -> pagination.Page[pagination.FoundThread]:
        """Return a page of threads that have `term` in their messages or names. `loaded`: ids of threads that change in
        this process. Of the filter, only the sources are used. Raises InvalidCursor.
        """
        start = pagination.parse_list_cursor(request.cursor, by_change=request.by_change)
        noted = self.notes.read()
        wanted = term.casefold()
        also = [*noted.named(lambda name: wanted in name.casefold()), *loaded]
        return self.index.get().retried(
            lambda index: _found_page(request, index.with_messages(request, start, term, also), term, noted)
        )

    def read_ahead(self) -> float | None:
        """Read some heads or messages in advance for the first search. Return how many seconds to pause afterwards;
        None if everything is read.
        """
        begun = time.monotonic()
        messages = self.reads_messages
        more = self.index.get().retried(lambda index: index.read_ahead(HEADS_AHEAD, messages=messages))
        self._is_read = self._is_read or not more
        if not more and messages == self.reads_messages:
            return None
        return (time.monotonic() - begun) * REST_AHEAD

    def _by_names(self, request: pagination.ListRequest, start: pagination.ListStart | None) -> Candidates:
        """Yield threads without using the index. Raises TooManyPassedBy."""
        passed_by = 0
        for listed, path in walk(
            self._home,
            archived=request.archived,
            newest_first=request.newest_first,
            start=start,
            names_in=self._names,
            segments_in=self._names.segments_in,
        ):
            if listed.id in request.filter.excluded:
                continue
            try:
                stored = read_stored_thread(path)
            except RolloutUnreadable:
                stored = None
            if stored is not None and matches(request.filter, stored, None):
                yield pagination.ListKey(listed.started, listed.id), stored, ""
            elif (passed_by := passed_by + 1) > MOST_PASSED_BY:
                raise TooManyPassedBy


def matches(wanted: pagination.ThreadFilter, stored: StoredThread, name: str | None) -> bool:
    """Return whether a thread with this name matches a filter. `name` is None if the thread has none."""
    head = stored.head
    return (
        stored.has_user_message
        and pagination.source_word(head.source) in wanted.sources
        and (wanted.providers is None or (head.provider or wanted.default_provider) in wanted.providers)
        and (wanted.cwds is None or _is_in(head.cwd, wanted.cwds))
        and (wanted.search is None or wanted.is_found(head.preview) or wanted.is_found(name or ""))
    )


def _is_in(cwd: str, wanted: frozenset[str]) -> bool:
    """Return whether a thread's folder is wanted, either by this name or by its real path."""
    return os.path.normpath(cwd) in wanted or real_path(cwd) in wanted


def matching(wanted: pagination.ThreadFilter, candidates: Candidates, noted: ThreadMetadata) -> Candidates:
    """Yield the candidates that match a filter."""
    return (each for each in candidates if matches(wanted, each[1], noted.name(each[0].thread_id)))


def page_of(
    request: pagination.ListRequest, candidates: Candidates, noted: ThreadMetadata
) -> pagination.Page[pagination.ThreadSummary]:
    """Return a page of the first candidates, which match the filter."""
    limit, provider = pagination.page_limit(request.limit), request.filter.default_provider
    rows: list[tuple[pagination.ListKey, StoredThread]] = []
    more = False
    for key, stored, _ in candidates:
        if more := len(rows) == limit:
            break
        rows.append((key, stored))
    if not rows:
        return pagination.Page()
    first, last = rows[0][0], rows[-1][0]
    return pagination.Page(
        tuple(summarise(stored, provider, noted) for _, stored in rows),
        last.cursor() if more else None,
        first.cursor(included=True),
    )


def _found_page(
    request: pagination.ListRequest, candidates: Candidates, term: str, noted: ThreadMetadata
) -> pagination.Page[pagination.FoundThread]:
    snippets: dict[str, str] = {}

    def with_snippets() -> Candidates:
        for key, stored, messages in matching(request.filter, candidates, noted):
            found = snippet(messages, term) or snippet(noted.name(key.thread_id) or "", term)
            if found is not None:
                snippets[stored.head.id] = found
                yield key, stored, messages

    page = page_of(request, with_snippets(), noted)
    return pagination.with_rows(page, tuple((summary, snippets[summary.id]) for summary in page.rows))
