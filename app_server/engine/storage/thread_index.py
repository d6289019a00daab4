"""Index of stored threads: facts from their heads, for searching and for sorting by change; and their messages, as soon
as these are searched. The files, not the index, are the source of truth.

1. Each use first compares the modification times of the folders with those of the last use. From time to time it
   compares those of all files, too. New, changed and removed threads are noted.
2. Each candidate is compared with its file, and read again if the file changed.

A head is read when it is first needed, so a new index answers at once.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import astuple

from app_server.engine.storage import index_file, rollout_files, thread_rows
from app_server.engine.storage.pagination import ListKey, ListRequest, ListStart, page_limit
from app_server.engine.storage.rollout_names import RolloutName, parse_rollout_name, started_at, stored_path
from app_server.engine.storage.thread_summary import (
    FileState,
    StoredThread,
    read_message_text,
    read_stored_thread,
)
from app_server.engine.support.engine_errors import RolloutUnreadable
from app_server.engine.support.real_path import real_path
from app_server_protocol.ids import ConversationId
from app_server_protocol.values import replace

RECENT_NS = 24 * 3600 * 10**9
"""Age in nanoseconds up to which a file without a message is checked at each use: its first turn may have begun
since.
"""

Row = tuple[str | int, ...]
Candidates = Iterator[tuple[ListKey, StoredThread, str]]
"""Threads with their sort keys, and with their messages if these are searched."""


class IndexChanges(Struct):
    new: list[Row] = msgspec.field(default_factory=list)
    """Rows of new threads, and of changed ones."""
    gone: list[thread_rows.Key] = msgspec.field(default_factory=list)
    folders: list[tuple[int, str, int | None]] = msgspec.field(default_factory=list)
    lost_folders: list[tuple[int, str]] = msgspec.field(default_factory=list)

    def store(self, database: sqlite3.Connection) -> None:
        """Write the changes to the index. Raises `sqlite3.Error`."""
        if not (self.new or self.gone or self.folders or self.lost_folders):
            return
        with index_file.transaction(database):
            thread_rows.forget(database, self.gone)
            database.executemany(
                "INSERT OR REPLACE INTO threads (archived, stamp, id, known, inode, size, changed, moved, started)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [(*row, started_at(str(row[1]), str(row[2]))) for row in self.new],
            )
            database.executemany("DELETE FROM folders WHERE archived = ? AND day = ?", self.lost_folders)
            database.executemany("INSERT OR REPLACE INTO folders VALUES (?, ?, ?)", self.folders)


def find_changes(
    database: sqlite3.Connection, home: Path, now_ns: int, *, archived: bool, whole: bool
) -> IndexChanges:
    """Find the changes of folders whose modification time changed, and of files that may have been used for the first
    time. `whole`: of all files.

    Raises `sqlite3.Error`.
    """
    found = IndexChanges()
    known = dict(database.execute("SELECT day, changed FROM folders WHERE archived = ?", (archived,)))
    for folder in rollout_files.folders(home, archived=archived):
        try:
            changed = os.stat(folder.path, follow_symlinks=False).st_mtime_ns
        except OSError:
            continue
        before = known.pop(folder.day, -1)
        if whole or before != changed:
            _compare(database, folder, found, archived=archived)
            # A folder's time may stay the same if the folder changes twice within one tick of the file system's clock.
            kept = changed if changed < now_ns - rollout_files.SETTLED_NS else None
            if before != kept:
                found.folders.append((archived, folder.day, kept))
    for day in known:
        _compare(database, rollout_files.RolloutFolder("", day), found, archived=archived)
        found.lost_folders.append((archived, day))
    if not whole:
        _look_at_unused(database, home, now_ns - RECENT_NS, found, archived=archived)
    return found


def file_state(path: Path) -> FileState | None:
    """Return the state of a regular file; None if the path is none."""
    try:
        status = os.stat(path, follow_symlinks=False)
    except (OSError, ValueError):
        return None
    return FileState.of(status) if stat.S_ISREG(status.st_mode) else None


# --- parts
def _compare(
    database: sqlite3.Connection, folder: rollout_files.RolloutFolder, found: IndexChanges, *, archived: bool
) -> None:
    rows = database.execute(
        "SELECT stamp, id, inode, size, changed, moved FROM threads WHERE archived = ? AND stamp >= ? AND stamp < ?",
        (archived, folder.day, f"{folder.day}~"),
    )
    known = {f"rollout-{stamp}-{id}.jsonl": FileState(*state) for stamp, id, *state in rows}
    for file_name, state in _files(folder) if folder.path else ():
        if known.pop(file_name, None) == state:
            continue
        name = parse_rollout_name(file_name)
        if name is not None and name.stamp.startswith(folder.day):
            found.new.append(
                (archived, name.stamp, name.conversation_id, thread_rows.UNREAD, *astuple(state))
            )
    found.gone += [(archived, name[rollout_files.STAMP], name[rollout_files.ID]) for name in known]


def _look_at_unused(
    database: sqlite3.Connection, home: Path, since_ns: int, found: IndexChanges, *, archived: bool
) -> None:
    rows = database.execute(
        "SELECT stamp, id, inode, size, changed, moved FROM threads"
        f" WHERE archived = ? AND changed > ? AND known = {thread_rows.HIDDEN}",
        (archived, since_ns),
    ).fetchall()
    for stamp, id, *before in rows:
        state = file_state(stored_path(home, RolloutName(stamp, ConversationId(id)), archived=archived))
        if state is not None and state != FileState(*before):
            found.new.append((archived, stamp, id, thread_rows.UNREAD, *astuple(state)))


def _files(folder: rollout_files.RolloutFolder) -> Iterator[tuple[str, FileState]]:
    """Yield the names and states of the files in a folder. The loop does little work per file, since a home may have
    very many.
    """
    try:
        with os.scandir(folder.path) as entries:
            for entry in entries:
                if len(entry.name) != rollout_files.NAME_LENGTH:
                    continue
                try:
                    status = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
                if stat.S_ISREG(status.st_mode):
                    yield entry.name, FileState.of(status)
    except OSError:
        return


CHUNK = 512
SEARCHED = 128
"""Chunk size in threads, as `CHUNK`, if the messages of each thread may have to be read."""
ATTEMPTS = 3
REST = 10.0
"""Pause before all files are checked again, as a multiple of the time that the last check took."""
MOST_REST_SECONDS = 2.0
CALM = 15.0
"""Factor of that pause if threads are not sorted by change."""

Result = TypeVar("Result")


class IndexReplaced(Exception):
    """Another thread replaced the index by an empty one."""


class ThreadIndex:
    """Index of the threads of one home. All methods block. Thread-safe."""

    def __init__(
        self,
        home: Path,
        now: Callable[[], float],
        file: index_file.IndexFile | None = None,
        newest: Callable[[Path, bool], Mapping[str, Path]] = lambda home, archived: rollout_files.NO_SEGMENTS,
    ) -> None:
        """Open the index of a home. `now` returns seconds since 1970. `file` is the index of the home, if others use it
        in this process. `newest` returns the newest files of the
        conversations that have several files, by conversation id; its second argument says whether those in the archive
        are wanted.
        """
        self._home, self._now, self._newest = home, now, newest
        self._file = file or index_file.IndexFile(home)
        self._mutex = self._file.mutex
        self._last_look: dict[tuple[int, bool], tuple[float, float]] = {}
        """End and duration of the last check of all files, in seconds, by generation of the index and by whether it was
        the archive.
        """

    def retried(self, ask: Callable[[ThreadIndex], Result]) -> Result:
        """Return the result of `ask`. It is retried with an empty index if this one cannot be used."""
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

    def unless_busy(self, ask: Callable[[ThreadIndex], Result]) -> Result | None:
        """Return the result of `ask`; None if others use the index, or if it is in memory or cannot be used."""
        try:
            return self._file.unless_busy(lambda: ask(self))
        except IndexReplaced:
            return None

    def candidates(self, request: ListRequest, start: ListStart | None, named: Sequence[str]) -> Candidates:
        """Yield threads in the order of the request: more than what matches, but never less. `named`: ids of threads
        whose names match the search.

        Raises IndexReplaced and `sqlite3.Error`.
        """
        return self._held(request, start, thread_rows.IndexQuery.of(self._with_links(request), named), CHUNK)

    def _with_links(self, request: ListRequest) -> ListRequest:
        """Return the request with additional names of the wanted folders: those that lead there by links. Raises
        `sqlite3.Error`.
        """
        wanted = request.filter.cwds
        if wanted is None:
            return request
        with self._mutex:
            stored = thread_rows.stored_folders(self._file.connection())
        linked = (each for each in stored if each not in wanted and real_path(each) in wanted)
        return replace(request, filter=replace(request.filter, cwds=frozenset((*wanted, *linked))))

    def with_messages(
        self, request: ListRequest, start: ListStart | None, term: str, also: Sequence[str]
    ) -> Candidates:
        """Yield threads that may have `term` in their messages, with the messages. `also`: ids of threads that are
        yielded in any case.

        Of the filter, only the sources are used. Raises IndexReplaced and `sqlite3.Error`.
        """
        return self._held(
            request, start, thread_rows.IndexQuery.of_messages(request, term, also), SEARCHED, messages=True
        )

    def read_ahead(self, count: int, *, messages: bool = False) -> bool:
        """Read `count` heads that were not needed yet, or with `messages` also their messages. Return False if there
        are no more, or if the index is in memory.

        Raises `sqlite3.Error`.
        """
        with self._mutex:
            if self._file.in_memory:
                return False
            if (self._file.generation, False) not in self._last_look:
                self._look(archived=False, first_page=True, by_change=False)
            database = self._file.connection()
            entries = thread_rows.unread(database, count, messages=messages)
            found = self._hold_against_files(database, entries)
            if messages:
                self._messages(database, entries, found)
            return len(entries) == count

    def _held(
        self,
        request: ListRequest,
        start: ListStart | None,
        query: thread_rows.IndexQuery,
        chunk: int,
        *,
        messages: bool = False,
    ) -> Candidates:
        """Yield the results of the query, updated from the files. The first chunk has as many as a page shows."""
        with self._mutex:
            self._look(
                archived=request.archived,
                first_page=request.cursor is None and not request.follows_names,
                by_change=request.by_change
                and not messages,  # a client that searches changes its filters often
            )
            generation = self._file.generation
        count = page_limit(request.limit) + 1
        while True:
            with self._mutex:
                database = self._file.connection()
                if self._file.generation != generation:
                    raise IndexReplaced
                entries = query.fetch(database, start, count)
                found = self._hold_against_files(database, entries)
                texts = self._messages(database, entries, found) if messages else [""] * len(entries)
            for entry, stored, text in zip(entries, found, texts, strict=True):
                if stored is not None:
                    yield entry.key(by_change=request.by_change), stored, text
            if len(entries) < count:
                return
            start, count = ListStart(entries[-1].key(by_change=request.by_change), included=False), chunk

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
        self, database: sqlite3.Connection, entries: Sequence[thread_rows.IndexedThread]
    ) -> list[StoredThread | None]:
        """Return the threads of these entries from their files; None for a file that is gone or not shown."""
        found: list[StoredThread | None] = []
        read: list[tuple[thread_rows.IndexedThread, FileState | None, StoredThread | None]] = []
        newest = {archived: self._newest(self._home, archived) for archived in {e.archived for e in entries}}
        for entry in entries:
            path = stored_path(self._home, entry.name, archived=entry.archived)
            path = newest[entry.archived].get(entry.name.conversation_id, path)
            state, stored = file_state(path), None
            if state is not None and state == entry.state and entry.known == thread_rows.SHOWN:
                stored = thread_rows.from_summary(entry.summary or "", path, state)
            is_hidden = state is not None and state == entry.state and entry.known == thread_rows.HIDDEN
            if stored is None and not is_hidden:
                stored = None if state is None else _read(path)
                read.append((entry, state if stored is None else stored.state, stored))
            found.append(stored)
        if read:
            with index_file.transaction(database):
                for entry, state, stored in read:
                    if state is None:
                        thread_rows.forget(database, [entry.row_key])
                    else:
                        thread_rows.note(database, entry.row_key, state, stored)
        return found

    def _messages(
        self,
        database: sqlite3.Connection,
        entries: Sequence[thread_rows.IndexedThread],
        found: Sequence[StoredThread | None],
    ) -> list[str]:
        """Return the messages of these threads; an empty text for one that is gone."""
        texts: list[str] = []
        read: list[tuple[thread_rows.Key, str]] = []
        for entry, stored in zip(entries, found, strict=True):
            messages = "" if stored is None else thread_rows.messages_of(database, entry.row_key)
            if messages is None and stored is not None:
                messages = _read_messages(stored.path)
                read.append((entry.row_key, messages))
            texts.append(messages or "")
        if read:
            with index_file.transaction(database):
                for key, messages in read:
                    thread_rows.note_messages(database, key, messages)
        return texts


def _read_messages(path: Path) -> str:
    try:
        return read_message_text(path)
    except RolloutUnreadable:
        return ""


def _read(path: Path) -> StoredThread | None:
    """Read the head of a file; None if it is not shown."""
    try:
        stored = read_stored_thread(path)
    except RolloutUnreadable:
        return None
    return stored if stored.has_user_message else None
