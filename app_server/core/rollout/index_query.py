"""A list request as SQL over the index. It may find more than what matches, never less. Pure."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from app_server.core.rollout.index_rows import SHOWN, UNREAD, clean, json_array
from app_server.core.rollout.rollout_names import RolloutName
from app_server.core.rollout.thread_query import ListKey, ListRequest, ListStart
from app_server.core.rollout.thread_summary import FileState
from protocol.ids import ConversationId

SqlValue = str | int
_STARTS, _CHANGES = ("stamp", "id"), ("changed", "id")


class IndexedThread(Struct, frozen=True):
    """A row of the index."""

    name: RolloutName
    known: int
    state: FileState
    summary: str | None

    def key(self, *, by_change: bool) -> ListKey:
        id = self.name.conversation_id
        return ListKey.of_change(self.state.changed_ns, id) if by_change else ListKey(self.name.stamp, id)


class IndexQuery(Struct, frozen=True):
    condition: str
    values: tuple[SqlValue, ...]
    by_change: bool
    newest_first: bool

    @classmethod
    def of(cls, request: ListRequest, named: Sequence[str]) -> IndexQuery:
        """`named`: ids whose names match the search. What was not read yet always matches."""
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
        if wanted.excluded:
            condition += " AND id NOT IN (SELECT value FROM json_each(?))"
            values.append(json_array(wanted.excluded))
        return cls(
            f"archived = ? AND {condition}",
            (int(request.archived), *values),
            request.by_change,
            request.newest_first,
        )

    def fetch(self, database: sqlite3.Connection, start: ListStart | None, count: int) -> list[IndexedThread]:
        """Raises `sqlite3.Error`."""
        order, values = page_order(start, by_change=self.by_change, newest_first=self.newest_first)
        return _fetch(database, f"{self.condition}{order}", (*self.values, *values, count))


def page_order(
    start: ListStart | None, *, by_change: bool, newest_first: bool, table: str = "threads"
) -> tuple[str, tuple[SqlValue, ...]]:
    """The end of a condition on rows of `table`, from this place on, and the order."""
    columns = [f"{table}.{column}" for column in (_CHANGES if by_change else _STARTS)]
    values: tuple[SqlValue, ...] = ()
    condition = ""
    if start is not None:
        comparison = ("<" if newest_first else ">") + ("=" if start.included else "")
        condition = f" AND ({', '.join(columns)}) {comparison} (?, ?)"
        value = start.key.value
        values = (min(int(value), 2**63 - 1) if by_change else value, start.key.thread_id)
    direction = "DESC" if newest_first else "ASC"
    return f"{condition} ORDER BY {', '.join(f'{column} {direction}' for column in columns)}", values


def unread(database: sqlite3.Connection, count: int) -> list[IndexedThread]:
    """The newest outside the archive of which nothing is known. Raises `sqlite3.Error`."""
    return _fetch(database, f"archived = 0 AND known = {UNREAD} ORDER BY stamp DESC, id DESC", (count,))


def _fetch(database: sqlite3.Connection, condition: str, values: Sequence[SqlValue]) -> list[IndexedThread]:
    rows = database.execute(
        f"SELECT {ROW} FROM threads LEFT JOIN summaries USING (archived, stamp, id) WHERE {condition} LIMIT ?",
        values,
    )
    return [indexed_thread(row) for row in rows]


ROW = "threads.stamp, threads.id, known, inode, size, threads.changed, moved, summary"
"""The columns of an `IndexedThread`."""


def indexed_thread(row: tuple[Any, ...]) -> IndexedThread:
    stamp, id, known, *state, summary = row
    return IndexedThread(RolloutName(stamp, ConversationId(id)), known, FileState(*state), summary)
