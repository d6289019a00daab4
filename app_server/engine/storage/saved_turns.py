"""The places of turns of long files, in the index of the home: the first page of a long thread after a start needs no
pass over its file.

1. A snapshot is all that is needed to go on from a line: the turns so far, and a small state of the decoder. So it is
   made only when nothing is open there that a decoder knows and this state has not: a call, or a part of reasoning.
2. It is saved when a page was read, and the file has grown much since the last one. Short files are never saved.
3. It belongs to an inode, and counts as long as the file has the same bytes at its begin and where the snapshot ends.
   Only what was appended since is read.

What cannot be saved or loaded costs a pass over the file, never an answer.
"""

from __future__ import annotations

import logging
import sqlite3
from typing import Final

import msgspec

from app_server.engine.storage import index_file
from app_server.engine.storage.turn_places import FileId, TurnSnapshot
from app_server.engine.support.lazy import Lazy

log = logging.getLogger(__name__)

MOST_FILES: Final = 256
"""Maximum number of files whose turns are saved. Those that were saved last are kept."""

_SELECT: Final = "SELECT saved FROM turns WHERE device = ? AND inode = ? AND thread = ?"
_DELETE: Final = "DELETE FROM turns WHERE device = ? AND inode = ?"
_SNAPSHOT: Final = msgspec.msgpack.Decoder(TurnSnapshot)


class SavedTurns:
    """The snapshots in the index of a home. All methods block. Thread-safe."""

    def __init__(self, file: Lazy[index_file.IndexFile]) -> None:
        self._file = file

    def load(self, file_id: FileId, thread: str) -> TurnSnapshot | None:
        """Return the snapshot of a file; None if there is none."""
        file = self._file.get()
        try:
            with file.mutex:
                rows = file.connection().execute(_SELECT, _key(file_id, thread))
                row = rows.fetchone()
            return None if row is None else _SNAPSHOT.decode(row[0])
        except sqlite3.Error as error:
            self._failed(file, error)
        except msgspec.MsgspecError as error:
            log.info("the turns of %s are read anew: %s", thread, error)
        return None

    def save(self, file_id: FileId, thread: str, snapshot: TurnSnapshot) -> None:
        """Store the snapshot of a file."""
        file, saved = self._file.get(), msgspec.msgpack.encode(snapshot)
        try:
            with file.mutex:
                database = file.connection()
                if file.in_memory:
                    return
                with index_file.transaction(database):
                    database.execute(_DELETE, _key(file_id))
                    database.execute("INSERT INTO turns VALUES (?, ?, ?, ?)", (*_key(file_id, thread), saved))
                    database.execute(
                        "DELETE FROM turns WHERE rowid <= (SELECT max(rowid) FROM turns) - ?", (MOST_FILES,)
                    )
        except sqlite3.Error as error:
            self._failed(file, error)

    def forget(self, file_id: FileId) -> None:
        """Delete the snapshot of a file, which does not fit the file."""
        file = self._file.get()
        try:
            with file.mutex:
                file.connection().execute(_DELETE, _key(file_id))
        except sqlite3.Error as error:
            self._failed(file, error)

    def _failed(self, file: index_file.IndexFile, error: sqlite3.Error) -> None:
        """Go on without. Only a damaged file is replaced, since a lock or a full disk may be gone next time."""
        if type(error) is sqlite3.DatabaseError:
            with file.mutex:
                file.replace(error)
        else:
            log.info("the turns of a thread are not saved: %s", error)


def _key(file_id: FileId, *thread: str) -> tuple[int | str, ...]:
    """Return the values of a row's key. SQLite has integers of 64 bits with a sign."""
    device, inode = file_id
    return device & 2**63 - 1, inode & 2**63 - 1, *thread
