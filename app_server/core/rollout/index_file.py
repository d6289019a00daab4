"""The SQLite file of the index of threads. It may be lost at any time, and is made anew where it cannot be used.

Where the home cannot be written, or another server keeps the file locked, the index is in memory. The file is private
and never reached through a link.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import stat
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import quote

log = logging.getLogger(__name__)

FILE_NAME = "thread_index.sqlite"
VERSION = 4
"""Of the tables and of what is in them; a file of another version is replaced."""
BUSY_SECONDS = 1.0
PRAGMAS = (
    *("trusted_schema = OFF", "cache_size = -8192", "secure_delete = ON"),
    *("page_size = 16384", "journal_mode = WAL", "synchronous = NORMAL"),
)

_TABLES = """
CREATE TABLE folders (archived INTEGER, day TEXT, changed INTEGER, PRIMARY KEY (archived, day)) WITHOUT ROWID;
CREATE TABLE threads (
    archived INTEGER, stamp TEXT, id TEXT,
    known INTEGER NOT NULL,
    inode INTEGER NOT NULL, size INTEGER NOT NULL, changed INTEGER NOT NULL, moved INTEGER NOT NULL,
    source TEXT, provider TEXT, cwd TEXT, text TEXT,
    has_messages INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (archived, stamp, id)
) WITHOUT ROWID;
CREATE INDEX threads_by_change ON threads (archived, changed, id);
CREATE INDEX unread_threads ON threads (archived, stamp, id) WHERE known = 0;
CREATE INDEX hidden_threads ON threads (archived, changed) WHERE known = 2;
CREATE INDEX threads_by_id ON threads (id);
CREATE INDEX threads_without_messages ON threads (archived, stamp, id) WHERE has_messages = 0 AND known != 2;
CREATE INDEX changes_without_messages ON threads (archived, changed, id) WHERE has_messages = 0 AND known != 2;
CREATE TABLE messages (
    archived INTEGER, stamp TEXT, id TEXT, folded TEXT NOT NULL, packed BLOB NOT NULL,
    PRIMARY KEY (archived, stamp, id)
);
CREATE TABLE summaries (
    archived INTEGER, stamp TEXT, id TEXT, summary TEXT NOT NULL, PRIMARY KEY (archived, stamp, id)
) WITHOUT ROWID;
"""


class IndexFile:
    """A connection that is replaced when it fails. The caller keeps two threads from using it at once."""

    def __init__(self, home: Path) -> None:
        self._path: Path | None = home / FILE_NAME
        self._connection: sqlite3.Connection | None = None
        self._rebuilt = False
        self.generation = 0
        """Grows with every index that begins empty."""

    @property
    def in_memory(self) -> bool:
        return self._path is None

    def connection(self) -> sqlite3.Connection:
        """Return the connection, opened if need be. Raises `sqlite3.Error`."""
        if self._connection is None:
            self._connection = self._open_file() or self._open_memory()
            weakref.finalize(self, self._connection.close)
        return self._connection

    def replace(self, error: sqlite3.Error) -> None:
        """Begin anew after this error: with another file where this one was damaged, else in memory."""
        log.warning("the index of threads is made anew: %s", error)
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        # The class of a damaged file is `DatabaseError` itself; its subclasses are about locks, disks and rights.
        if self._path is None or self._rebuilt or type(error) is not sqlite3.DatabaseError:
            self._path = None
        else:
            self._rebuilt = True
            _remove(self._path)

    def _open_file(self) -> sqlite3.Connection | None:
        if self._path is None:
            return None
        for _ in range(2):
            try:
                _make_private(self._path)
                connection = _prepared(f"file:{quote(str(self._path))}?mode=rw")
            except OSError as error:
                log.info("the index of threads cannot be opened: %s", error)
                return None
            except sqlite3.Error as error:
                log.warning("the index of threads is made anew: %s", error)
                if type(error) is not sqlite3.DatabaseError:
                    return None
                connection = None  # it is damaged
            if connection is not None:
                self.generation += 1
                return connection
            _remove(self._path)
        return None

    def _open_memory(self) -> sqlite3.Connection:
        self._path = None
        connection = _prepared("file::memory:")
        assert connection is not None  # there is no other version in memory
        self.generation += 1
        return connection


def _make_private(path: Path) -> None:
    """Create the file, private. Raises OSError for what is no file."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(f"{path} is not a regular file")
        os.fchmod(fd, 0o600)
    finally:
        os.close(fd)


def _prepared(uri: str) -> sqlite3.Connection | None:
    """Open a database with the tables; None where it has those of another version. Raises `sqlite3.Error`."""
    connection = sqlite3.connect(
        uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
    )
    with ExitStack() as closing:
        closing.callback(connection.close)
        for pragma in PRAGMAS:
            connection.execute(f"PRAGMA {pragma}")
        with transaction(connection):
            [version] = connection.execute("PRAGMA user_version").fetchone()
            if version == 0 and not connection.execute("SELECT name FROM sqlite_master").fetchall():
                for statement in filter(str.strip, _TABLES.split(";")):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {VERSION}")
                version = VERSION
        if version == VERSION:
            closing.pop_all()
            return connection
    return None


@contextmanager
def transaction(database: sqlite3.Connection) -> Iterator[None]:
    """Run the block in a transaction. Raises `sqlite3.Error`."""
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        database.execute("ROLLBACK")
        raise
    database.execute("COMMIT")


def _remove(path: Path) -> None:
    for each in (path, path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")):
        try:
            each.unlink(missing_ok=True)
        except OSError as error:
            log.info("the index of threads cannot be removed: %s", error)
