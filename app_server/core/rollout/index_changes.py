"""What appeared, changed or went in the folders since the index was last compared with them."""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from app_server.core.rollout.index_rows import HIDDEN, UNREAD, forget, transaction
from app_server.core.rollout.rollout_files import (
    ID,
    NAME_LENGTH,
    SETTLED_NS,
    STAMP,
    RolloutFolder,
    folders,
)
from app_server.core.rollout.rollout_names import RolloutName, parse_rollout_name, stored_path
from app_server.core.rollout.thread_summary import FileState, state_values
from protocol.ids import ConversationId

RECENT_NS = 24 * 3600 * 10**9
"""A file without a message that changed so lately is looked at each time: its first turn may have begun since."""

Row = tuple[str | int, ...]


class IndexChanges(Struct):
    new: list[Row] = msgspec.field(default_factory=list)
    """Also what changed."""
    gone: list[tuple[int, str, str]] = msgspec.field(default_factory=list)
    folders: list[tuple[int, str, int | None]] = msgspec.field(default_factory=list)
    lost_folders: list[tuple[int, str]] = msgspec.field(default_factory=list)

    def store(self, database: sqlite3.Connection) -> None:
        """Raises `sqlite3.Error`."""
        if not (self.new or self.gone or self.folders or self.lost_folders):
            return
        with transaction(database):
            forget(database, self.gone)
            database.executemany(
                "INSERT OR REPLACE INTO threads (archived, stamp, id, known, inode, size, changed, moved)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                self.new,
            )
            database.executemany("DELETE FROM folders WHERE archived = ? AND day = ?", self.lost_folders)
            database.executemany("INSERT OR REPLACE INTO folders VALUES (?, ?, ?)", self.folders)


def find_changes(
    database: sqlite3.Connection, home: Path, now_ns: int, *, archived: bool, whole: bool
) -> IndexChanges:
    """Of folders whose time changed, and of files that may have been used for the first time; `whole`: of all files.

    Raises `sqlite3.Error`.
    """
    found = IndexChanges()
    known = dict(database.execute("SELECT day, changed FROM folders WHERE archived = ?", (archived,)))
    for folder in folders(home, archived=archived):
        try:
            changed = os.stat(folder.path, follow_symlinks=False).st_mtime_ns
        except OSError:
            continue
        before = known.pop(folder.day, -1)
        if whole or before != changed:
            _compare(database, folder, found, archived=archived)
            # What changes a folder within one tick of the file system's clock does not change its time.
            kept = changed if changed < now_ns - SETTLED_NS else None
            if before != kept:
                found.folders.append((archived, folder.day, kept))
    for day in known:
        _compare(database, RolloutFolder("", day), found, archived=archived)
        found.lost_folders.append((archived, day))
    if not whole:
        _look_at_unused(database, home, now_ns - RECENT_NS, found, archived=archived)
    return found


def file_state(path: Path) -> FileState | None:
    """Of a regular file."""
    try:
        status = os.stat(path, follow_symlinks=False)
    except (OSError, ValueError):
        return None
    return FileState.of(status) if stat.S_ISREG(status.st_mode) else None


# --- parts
def _compare(
    database: sqlite3.Connection, folder: RolloutFolder, found: IndexChanges, *, archived: bool
) -> None:
    rows = database.execute(
        "SELECT stamp, id, inode, size, changed, moved FROM threads WHERE archived = ? AND stamp >= ? AND stamp < ?",
        (archived, folder.day, f"{folder.day}~"),
    )
    known = {f"rollout-{stamp}-{id}.jsonl": tuple(state) for stamp, id, *state in rows}
    for file_name, state in _files(folder) if folder.path else ():
        if known.pop(file_name, None) == state:
            continue
        name = parse_rollout_name(file_name)
        if name is not None and name.stamp.startswith(folder.day):
            found.new.append((archived, name.stamp, name.conversation_id, UNREAD, *state))
    found.gone += [(archived, name[STAMP], name[ID]) for name in known]


def _look_at_unused(
    database: sqlite3.Connection, home: Path, since_ns: int, found: IndexChanges, *, archived: bool
) -> None:
    rows = database.execute(
        "SELECT stamp, id, inode, size, changed, moved FROM threads"
        f" WHERE archived = ? AND changed > ? AND known = {HIDDEN}",
        (archived, since_ns),
    ).fetchall()
    for stamp, id, *before in rows:
        state = file_state(stored_path(home, RolloutName(stamp, ConversationId(id)), archived=archived))
        if state is not None and state != FileState(*before):
            found.new.append((archived, stamp, id, UNREAD, *state.values))


def _files(folder: RolloutFolder) -> Iterator[tuple[str, tuple[int, int, int, int]]]:
    """Names and states. This does little for each, since a home may have very many."""
    try:
        with os.scandir(folder.path) as entries:
            for entry in entries:
                if len(entry.name) != NAME_LENGTH:
                    continue
                try:
                    status = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
                if stat.S_ISREG(status.st_mode):
                    yield entry.name, state_values(status)
    except OSError:
        return
