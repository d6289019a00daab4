"""A list request as SQL over the index. It may find more than what matches, never less. Pure."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence

from app_server.core.rollout.index_rows import SHOWN, UNREAD, clean
from app_server.core.rollout.rollout_names import RolloutName
from app_server.core.rollout.thread_query import ListKey, ListRequest, ListStart
from app_server.core.rollout.thread_summary import FileState
from protocol.ids import ConversationId
from protocol.records import dataclass

SqlValue = str | int
_STARTS, _CHANGES = ("stamp", "id"), ("changed", "id")


@dataclass(frozen=True, slots=True)
class IndexedThread:
    """A row of the index."""

    name: RolloutName
    known: int
    state: FileState
    summary: str | None


@dataclass(frozen=True, slots=True)
class IndexQuery:
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

        require("source IN (SELECT value FROM json_each(?))", _json(wanted.sources))
        if wanted.providers is not None:
            require(
                "COALESCE(NULLIF(provider, ''), ?) IN (SELECT value FROM json_each(?))",
                clean(wanted.default_provider),
                _json(wanted.providers),
            )
        if wanted.cwds is not None:
            require("cwd IN (SELECT value FROM json_each(?))", _json(wanted.cwds))
        if wanted.search is not None:
            require(
                "(instr(text, ?) > 0 OR id IN (SELECT value FROM json_each(?)))",
                clean(wanted.search.casefold()),
                _json(named),
            )
        condition = f"(known = {UNREAD} OR (known = {SHOWN} AND {' AND '.join(parts)}))"
        if wanted.excluded:
            condition += " AND id NOT IN (SELECT value FROM json_each(?))"
            values.append(_json(wanted.excluded))
        return cls(
            f"archived = ? AND {condition}",
            (int(request.archived), *values),
            request.by_change,
            request.newest_first,
        )

    def fetch(self, database: sqlite3.Connection, start: ListStart | None, count: int) -> list[IndexedThread]:
        """Raises `sqlite3.Error`."""
        columns = _CHANGES if self.by_change else _STARTS
        condition, values = self.condition, list(self.values)
        if start is not None:
            comparison = ("<" if self.newest_first else ">") + ("=" if start.included else "")
            condition += f" AND ({', '.join(columns)}) {comparison} (?, ?)"
            value = start.key.value
            values += [min(int(value), 2**63 - 1) if self.by_change else value, start.key.thread_id]
        direction = "DESC" if self.newest_first else "ASC"
        order = ", ".join(f"{column} {direction}" for column in columns)
        return _fetch(database, f"{condition} ORDER BY {order}", (*values, count))

    def key(self, entry: IndexedThread) -> ListKey:
        id = entry.name.conversation_id
        return (
            ListKey.of_change(entry.state.changed_ns, id) if self.by_change else ListKey(entry.name.stamp, id)
        )


def unread(database: sqlite3.Connection, count: int) -> list[IndexedThread]:
    """The newest outside the archive of which nothing is known. Raises `sqlite3.Error`."""
    return _fetch(database, f"archived = 0 AND known = {UNREAD} ORDER BY stamp DESC, id DESC", (count,))


def _fetch(database: sqlite3.Connection, condition: str, values: Sequence[SqlValue]) -> list[IndexedThread]:
    rows = database.execute(
        "SELECT stamp, id, known, inode, size, changed, moved, summary"
        f" FROM threads LEFT JOIN summaries USING (archived, stamp, id) WHERE {condition} LIMIT ?",
        values,
    )
    return [
        IndexedThread(RolloutName(stamp, ConversationId(id)), known, FileState(*state), summary)
        for stamp, id, known, *state, summary in rows
    ]


def _json(texts: Sequence[str] | frozenset[str]) -> str:
    return json.dumps([clean(each) for each in texts])
