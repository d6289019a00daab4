"""The messages of threads in the index, and which threads may have a text: more than what matches, never less.

What the last search found is kept in a temporary table, so that further pages and other filters do not look at all
messages again. A thread whose messages were not read yet always counts as found.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Sequence
from heapq import merge
from itertools import islice

from app_server.core.rollout.index_rows import (
    HIDDEN,
    ROW,
    IndexedThread,
    SqlValue,
    clean,
    indexed_thread,
    json_array,
    page_order,
)
from app_server.core.rollout.thread_query import ListKey, ListRequest, ListStart

_TABLES = (
    "CREATE TEMP TABLE found (archived INTEGER, stamp TEXT, id TEXT, changed INTEGER, source TEXT,"
    " PRIMARY KEY (archived, stamp, id)) WITHOUT ROWID",
    "CREATE INDEX temp.found_by_change ON found (archived, changed, id)",
)
_FIND = "INSERT OR REPLACE INTO temp.found SELECT archived, stamp, id, changed, source FROM threads"
_UNREAD = f"has_messages = 0 AND known != {HIDDEN}"

Key = tuple[int, str, str]
"""Whether it is archived, its stamp and its id."""


class MessageSearch:
    """The last search of one connection. All methods raise `sqlite3.Error`."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        self._term: str | None = None
        """As it is searched; None: nothing was yet."""
        self._version = 0
        for statement in _TABLES:
            database.execute(statement)

    def use(self, term: str, also: Sequence[str]) -> None:
        """Note which threads may have `term`. `also`: ids of threads that are looked at in any case."""
        folded = clean(term.casefold())
        [version] = self._database.execute("PRAGMA data_version").fetchone()
        others_wrote, self._version = version != self._version, version
        if self._term is None or self._term not in folded or others_wrote:
            self._database.execute("DELETE FROM temp.found")
            self._database.execute(
                f"{_FIND} JOIN messages USING (archived, stamp, id) WHERE instr(folded, ?) > 0", (folded,)
            )
        elif self._term != folded:
            # A longer text is nowhere where a part of it is not.
            self._database.execute(
                "DELETE FROM temp.found WHERE NOT EXISTS (SELECT 1 FROM messages AS m"
                " WHERE m.archived = found.archived AND m.stamp = found.stamp AND m.id = found.id"
                " AND instr(m.folded, ?) > 0)",
                (folded,),
            )
        self._term = folded
        if also:
            ids = json_array(also)
            self._database.execute(f"{_FIND} WHERE id IN (SELECT value FROM json_each(?))", (ids,))

    def fetch(self, request: ListRequest, start: ListStart | None, count: int) -> list[IndexedThread]:
        """Return so many of those that may have the text, in the order of the request; its sources are a filter."""
        by_change, newest_first = request.by_change, request.newest_first

        def rows(table: str, condition: str, *values: SqlValue) -> list[IndexedThread]:
            order, place = page_order(start, by_change=by_change, newest_first=newest_first, table=table)
            return _rows(
                self._database, f"{condition}{order} LIMIT ?", (int(request.archived), *values, *place, count)
            )

        found = rows(
            "found",
            "temp.found CROSS JOIN threads USING (archived, stamp, id)"
            " LEFT JOIN summaries USING (archived, stamp, id)"
            " WHERE found.archived = ? AND has_messages = 1"
            " AND found.source IN (SELECT value FROM json_each(?))",
            json_array(request.filter.sources),
        )
        unread = rows(
            "threads",
            f"threads LEFT JOIN summaries USING (archived, stamp, id) WHERE threads.archived = ? AND {_UNREAD}",
        )

        def key(entry: IndexedThread) -> ListKey:
            return entry.key(by_change=by_change)

        return list(islice(merge(found, unread, key=key, reverse=newest_first), count))

    def note(self, key: Key, messages: str) -> None:
        """Note what was said in a thread whose head is known."""
        folded = clean(messages.casefold())
        self._database.execute(
            "INSERT OR REPLACE INTO messages VALUES (?, ?, ?, ?, ?)",
            (*key, folded, zlib.compress(messages.encode("utf-8", "replace"), 1)),
        )
        of_thread = "archived = ? AND stamp = ? AND id = ?"
        self._database.execute(f"UPDATE threads SET has_messages = 1 WHERE {of_thread}", key)
        if self._term is not None and self._term in folded:
            self._database.execute(f"{_FIND} WHERE {of_thread}", key)


def messages_of(database: sqlite3.Connection, key: Key) -> str | None:
    """Return what was said, if it was read since the file changed. Raises `sqlite3.Error`."""
    row = database.execute(
        "SELECT packed FROM messages JOIN threads USING (archived, stamp, id)"
        " WHERE archived = ? AND stamp = ? AND id = ? AND has_messages = 1",
        key,
    ).fetchone()
    try:
        return None if row is None else zlib.decompress(row[0]).decode()
    except (zlib.error, UnicodeDecodeError):
        return None


def without_messages(database: sqlite3.Connection, count: int) -> list[IndexedThread]:
    """Return the newest outside the archive whose messages were not read. Raises `sqlite3.Error`."""
    return _rows(
        database,
        "threads LEFT JOIN summaries USING (archived, stamp, id)"
        f" WHERE threads.archived = 0 AND {_UNREAD} ORDER BY threads.stamp DESC, threads.id DESC LIMIT ?",
        (count,),
    )


def _rows(database: sqlite3.Connection, source: str, values: Sequence[SqlValue]) -> list[IndexedThread]:
    return [indexed_thread(row) for row in database.execute(f"SELECT {ROW} FROM {source}", values)]
