"""The index of stored threads: what their heads say, for searching and for the order of changes. Never the truth.

Each use first compares the folders' times with those of the last time, and now and then those of all files; what
appeared, changed or is gone is noted. Each candidate is held against its file and read again where that changed. A head
is read when it is first needed, so a new index answers at once.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from app_server.core.rollout.index_changes import file_state, find_changes
from app_server.core.rollout.index_file import IndexFile
from app_server.core.rollout.index_query import IndexedThread, IndexQuery, unread
from app_server.core.rollout.index_rows import SHOWN, forget, from_summary, note, transaction
from app_server.core.rollout.listing import page_limit
from app_server.core.rollout.rollout_errors import RolloutUnreadable
from app_server.core.rollout.rollout_names import stored_path
from app_server.core.rollout.thread_query import ListKey, ListRequest, ListStart
from app_server.core.rollout.thread_summary import FileState, StoredThread, read_stored_thread

CHUNK = 512
ATTEMPTS = 3
REST = 10.0
"""All files are looked at again after so many times as long as the last look took."""
MOST_REST_SECONDS = 2.0
CALM = 15.0
"""That many times as long where the order of changes does not matter."""

Result = TypeVar("Result")


class IndexReplaced(Exception):
    """Another thread began anew with an empty one."""


class ThreadIndex:
    """The index of one home. All methods block; they may be called in several threads."""

    def __init__(self, home: Path, now: Callable[[], float]) -> None:
        """`now` gives seconds since 1970."""
        self._home, self._now = home, now
        self._file = IndexFile(home)
        self._mutex = threading.RLock()
        self._last_look: dict[tuple[int, bool], tuple[float, float]] = {}
        """At all files: when it ended and how long it took, by generation of the index and archive."""

    def retried(self, ask: Callable[[ThreadIndex], Result]) -> Result:
        """What `ask` returns. It is called again, with an empty index, where this one cannot be used."""
        for _ in range(ATTEMPTS):
            try:
                return ask(self)
            except IndexReplaced:
                continue
            except sqlite3.ProgrammingError:
                raise
            except sqlite3.Error as error:
                with self._mutex:
                    self._file.replace(error)
        return ask(self)

    def candidates(
        self, request: ListRequest, start: ListStart | None, named: Sequence[str]
    ) -> Iterator[tuple[ListKey, StoredThread]]:
        """In the order of the request; more than what matches, never less. `named`: ids whose names match the search.

        Raises IndexReplaced and `sqlite3.Error`.
        """
        with self._mutex:
            self._look(
                archived=request.archived, first_page=request.cursor is None, by_change=request.by_change
            )
            generation = self._file.generation
        query, count = IndexQuery.of(request, named), page_limit(request.limit) + 1
        while True:
            with self._mutex:
                database = self._file.connection()
                if self._file.generation != generation:
                    raise IndexReplaced
                entries = query.fetch(database, start, count)
                found = self._hold_against_files(database, entries, archived=request.archived)
            for entry, stored in zip(entries, found, strict=True):
                if stored is not None:
                    yield query.key(entry), stored
            if len(entries) < count:
                return
            start, count = ListStart(query.key(entries[-1]), included=False), CHUNK

    def read_ahead(self, count: int) -> bool:
        """Reads so many heads that nobody needed yet. False where there are no more, or where the index is in memory.

        Raises `sqlite3.Error`.
        """
        with self._mutex:
            if self._file.in_memory:
                return False
            if (self._file.generation, False) not in self._last_look:
                self._look(archived=False, first_page=True, by_change=False)
            database = self._file.connection()
            entries = unread(database, count)
            self._hold_against_files(database, entries, archived=False)
            return len(entries) == count

    # --- looking at the folders, with the mutex held
    def _look(self, *, archived: bool, first_page: bool, by_change: bool) -> None:
        database, begun = self._file.connection(), time.monotonic()
        looked = self._last_look.get((self._file.generation, archived))
        whole = looked is None
        if looked is not None and first_page:
            ended, took = looked
            rest = min(took * REST, MOST_REST_SECONDS) * (1.0 if by_change else CALM)
            whole = begun - ended > rest
        now_ns = int(self._now() * 1e9)
        find_changes(database, self._home, now_ns, archived=archived, whole=whole).store(database)
        if whole:
            ended = time.monotonic()
            self._last_look[self._file.generation, archived] = (ended, ended - begun)

    # --- looking at files, with the mutex held
    def _hold_against_files(
        self, database: sqlite3.Connection, entries: Iterable[IndexedThread], *, archived: bool
    ) -> list[StoredThread | None]:
        """What the files of these entries say; None for those that are gone or are not shown."""
        found: list[StoredThread | None] = []
        read: list[tuple[IndexedThread, FileState | None, StoredThread | None]] = []
        for entry in entries:
            path = stored_path(self._home, entry.name, archived=archived)
            state, stored = file_state(path), None
            if state is not None and state == entry.state and entry.known == SHOWN:
                stored = from_summary(entry.summary or "", path, state)
            if stored is None:
                stored = None if state is None else _read(path)
                read.append((entry, state if stored is None else stored.state, stored))
            found.append(stored)
        if read:
            with transaction(database):
                for entry, state, stored in read:
                    key = (int(archived), entry.name.stamp, entry.name.conversation_id)
                    if state is None:
                        forget(database, [key])
                    else:
                        note(database, key, state, stored)
        return found


def _read(path: Path) -> StoredThread | None:
    """None for what is not shown."""
    try:
        stored = read_stored_thread(path)
    except RolloutUnreadable:
        return None
    return stored if stored.head.has_user_message else None
