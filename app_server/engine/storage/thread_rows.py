"""The rows of threads in the index. Converts a stored thread into rows and back, and a list request into SQL; the
query may find more than what matches, but never less.
"""

from __future__ import annotations

import json
import os
import sqlite3
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import astuple

from app_server.engine.storage.pagination import ListKey, ListRequest, ListStart, StoredHead, source_word
from app_server.engine.storage.rollout_names import RolloutName
from app_server.engine.storage.thread_summary import FileState, StoredThread
from app_server_protocol.encoding import escaped_json
from app_server_protocol.ids import ConversationId

SEARCHED_CHARACTERS = 16 * 1024
"""Maximum number of characters of a preview that are searched. Later text is not found."""


UNREAD, SHOWN, HIDDEN = 0, 1, 2
"""States of a thread in the index: not read yet; shown; hidden, since it cannot be read or has no message of the
user.
"""


Key = tuple[int, str, str]
"""Whether a thread is archived, its time stamp and its id."""
_OF_KEY = "archived = ? AND stamp = ? AND id = ?"


def forget(database: sqlite3.Connection, keys: Sequence[Key]) -> None:
    for table in ("threads", "summaries", "messages"):
        database.executemany(f"DELETE FROM {table} WHERE {_OF_KEY}", keys)


def note(database: sqlite3.Connection, key: Key, state: FileState, stored: StoredThread | None) -> None:
    """Store what was read from a file in this state. `stored` is None if the file has nothing to show."""
    values = (None,) * 4 if stored is None else columns(stored)
    database.execute(
        "UPDATE threads SET known = ?, inode = ?, size = ?, changed = ?, moved = ?,"
        " source = ?, provider = ?, cwd = ?, text = ?, has_messages = 0 WHERE archived = ? AND stamp = ? AND id = ?",
        (HIDDEN if stored is None else SHOWN, *astuple(state), *values, *key),
    )
    if stored is not None:
        database.execute("INSERT OR REPLACE INTO summaries VALUES (?, ?, ?, ?)", (*key, to_summary(stored)))


def columns(stored: StoredThread) -> tuple[str, str, str, str]:
    """Return the source, the provider, the working directory and the text to search."""
    head = stored.head
    return (
        source_word(head.source),
        clean(head.provider),
        clean(os.path.normpath(head.cwd)),
        clean(head.preview[:SEARCHED_CHARACTERS].casefold()),
    )


def clean(text: str) -> str:
    """Return the text without characters that SQLite cannot store or compare."""
    return text.encode("utf-8", "replace").decode().replace("\0", " ")


def json_array(texts: Iterable[str]) -> str:
    """Return the texts as a JSON array for `json_each` in SQL."""
    return json.dumps([clean(each) for each in texts])


def to_summary(stored: StoredThread) -> str:
    return escaped_json(msgspec.to_builtins(stored.head)).decode()


def from_summary(summary: str, path: Path, state: FileState) -> StoredThread | None:
    """Return the thread that `to_summary` wrote; None if the text is anything else."""
    try:
        return StoredThread(msgspec.convert(json.loads(summary), StoredHead), path, state)
    except ValueError:
        return None


SqlValue = str | int
_STARTS, _CHANGES = ("started", "id"), ("changed", "id")


class IndexedThread(Struct, frozen=True):
    """A row of the index."""

    archived: bool
    name: RolloutName
    known: int
    state: FileState
    summary: str | None

    @property
    def row_key(self) -> Key:
        return int(self.archived), self.name.stamp, self.name.conversation_id

    def key(self, *, by_change: bool) -> ListKey:
        id = self.name.conversation_id
        return ListKey.of_change(self.state.changed_ns, id) if by_change else ListKey(self.name.started, id)


class IndexQuery(Struct, frozen=True):
    condition: str
    values: tuple[SqlValue, ...]
    by_change: bool
    newest_first: bool

    @classmethod
    def of(cls, request: ListRequest, named: Sequence[str]) -> IndexQuery:
        """Return the query for a request. `named`: ids of threads whose names match the search. A thread that was not
        read yet always matches.
        """
        wanted, parts, values = request.filter, [], list[SqlValue]()

        def require(part: str, *of_it: SqlValue) -> None:
            parts.append(part)
            values.extend(of_it)

        require("source IN (SELECT value FROM json_each(?))", json_array(wanted.sources))
        if wanted.providers is not None:
            require(
                "COALESCE(NULLIF(provider, ''), ?) IN (SELECT value FROM json_each(?))",
                clean(wanted.default_provider),
                json_array(wanted.providers),
            )
        if wanted.cwds is not None:
            require("cwd IN (SELECT value FROM json_each(?))", json_array(wanted.cwds))
        if wanted.search is not None:
            require(
                "(instr(text, ?) > 0 OR id IN (SELECT value FROM json_each(?)))",
                clean(wanted.search.casefold()),
                json_array(named),
            )
        condition = f"(known = {UNREAD} OR (known = {SHOWN} AND {' AND '.join(parts)}))"
        if request.follows_names:  # files are not looked at otherwise: they may be shown now
            condition = f"(known = {HIDDEN} OR {condition})"
        if wanted.included is not None:
            condition += " AND id IN (SELECT value FROM json_each(?))"
            values.append(json_array(wanted.included))
        if wanted.excluded:
            condition += " AND id NOT IN (SELECT value FROM json_each(?))"
            values.append(json_array(wanted.excluded))
        return cls(
            f"archived = ? AND {condition}",
            (int(request.archived), *values),
            request.by_change,
            request.newest_first,
        )

    @classmethod
    def of_messages(cls, request: ListRequest, term: str, also: Sequence[str]) -> IndexQuery:
        """Return the query for a search in messages. `also`: ids of threads that match in any case. A thread whose
        messages were not read yet always matches. Of the filter, only the sources are used.
        """
        # The unary plus stops SQLite from using an index to collect and sort all matches: a page is full early.
        condition = (
            f"archived = ? AND ((+has_messages = 0 AND known != {HIDDEN}) OR (+has_messages = 1"
            " AND source IN (SELECT value FROM json_each(?)) AND (id IN (SELECT value FROM json_each(?)) OR EXISTS"
            " (SELECT 1 FROM messages AS m WHERE m.archived = threads.archived AND m.stamp = threads.stamp"
            " AND m.id = threads.id AND instr(m.folded, ?) > 0))))"
        )
        sources = json_array(request.filter.sources)
        values = (int(request.archived), sources, json_array(also), clean(term.casefold()))
        return cls(condition, values, request.by_change, request.newest_first)

    def fetch(self, database: sqlite3.Connection, start: ListStart | None, count: int) -> list[IndexedThread]:
        """Return at most `count` rows from a position on; from the beginning if `start` is None. Raises
        `sqlite3.Error`.
        """
        columns = [f"threads.{column}" for column in (_CHANGES if self.by_change else _STARTS)]
        condition, values = self.condition, self.values
        if start is not None:
            comparison = ("<" if self.newest_first else ">") + ("=" if start.included else "")
            condition += f" AND ({', '.join(columns)}) {comparison} (?, ?)"
            value = start.key.value
            values += (min(int(value), 2**63 - 1) if self.by_change else value, start.key.thread_id)
        order = ", ".join(f"{column} {'DESC' if self.newest_first else 'ASC'}" for column in columns)
        return _fetch(database, f"{condition} ORDER BY {order}", (*values, count))


def unread(database: sqlite3.Connection, count: int, *, messages: bool = False) -> list[IndexedThread]:
    """Return the newest threads outside of the archive whose heads, or with `messages` whose messages, were not read
    yet. Raises `sqlite3.Error`.
    """
    condition = f"has_messages = 0 AND known != {HIDDEN}" if messages else f"known = {UNREAD}"
    return _fetch(database, f"archived = 0 AND {condition} ORDER BY started DESC, id DESC", (count,))


def stored_folders(database: sqlite3.Connection) -> list[str]:
    """Return the working directories of all threads in the index. Raises `sqlite3.Error`."""
    return [cwd for [cwd] in database.execute("SELECT DISTINCT cwd FROM threads WHERE cwd IS NOT NULL")]


def note_messages(database: sqlite3.Connection, key: Key, messages: str) -> None:
    """Store the messages of a thread whose head is stored already. Raises `sqlite3.Error`."""
    folded, packed = clean(messages.casefold()), zlib.compress(messages.encode("utf-8", "replace"), 1)
    database.execute("INSERT OR REPLACE INTO messages VALUES (?, ?, ?, ?, ?)", (*key, folded, packed))
    database.execute(f"UPDATE threads SET has_messages = 1 WHERE {_OF_KEY}", key)


def messages_of(database: sqlite3.Connection, key: Key) -> str | None:
    """Return the messages of a thread; None if they were not read since the file changed. Raises `sqlite3.Error`."""
    row = database.execute(
        f"SELECT packed FROM messages JOIN threads USING (archived, stamp, id) WHERE {_OF_KEY} AND has_messages = 1",
        key,
    ).fetchone()
    try:
        return None if row is None else zlib.decompress(row[0]).decode()
    except (zlib.error, UnicodeDecodeError):
        return None


def _fetch(database: sqlite3.Connection, condition: str, values: Sequence[SqlValue]) -> list[IndexedThread]:
    rows = database.execute(
        f"SELECT {ROW} FROM threads LEFT JOIN summaries USING (archived, stamp, id) WHERE {condition} LIMIT ?",
        values,
    )
    return [
        IndexedThread(
            bool(archived), RolloutName(stamp, ConversationId(id)), known, FileState(*state), summary
        )
        for archived, stamp, id, known, *state, summary in rows
    ]


ROW = "threads.archived, threads.stamp, threads.id, known, inode, size, threads.changed, moved, summary"
"""The columns of an `IndexedThread`."""
