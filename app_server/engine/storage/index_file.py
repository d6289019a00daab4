"""The SQLite file of a home's index: its tables, its connection, and what happens when it cannot be used.

The index has what is read of rollouts: the heads of threads for lists (`thread_rows`), their messages for searches, and
the places of the turns of long files (`saved_turns`). Rollouts and the files of notes are the truth:

1. The file may be lost at any time. It is created anew if it is missing, damaged or of another version.
2. If the home is not writable, its disk is full, or another server keeps the file locked, the index is in memory.
3. Several servers may use one file (WAL). `kill -9` costs what was not committed, which is read again.
4. The file is private to its owner and never opened through a link.
5. It is opened with the first list that needs it, or the first page of a long thread: never for a turn.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import stat
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

Result = TypeVar("Result")

log = logging.getLogger(__name__)

FILE_NAME = "index.sqlite"
OLDER_NAME = "thread_index.sqlite"
"""Name of the index up to version 5, which is removed: it has messages of users."""
VERSION = 6
"""Version of the tables and of their content. A file with another version is replaced."""
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
    started TEXT NOT NULL,
    PRIMARY KEY (archived, stamp, id)
) WITHOUT ROWID;
CREATE INDEX threads_by_start ON threads (archived, started, id);
CREATE INDEX threads_by_change ON threads (archived, changed, id);
CREATE INDEX unread_threads ON threads (archived, started, id) WHERE known = 0;
CREATE INDEX hidden_threads ON threads (archived, changed) WHERE known = 2;
CREATE INDEX threads_by_id ON threads (id);
CREATE INDEX threads_without_messages ON threads (archived, started, id) WHERE has_messages = 0 AND known != 2;
CREATE INDEX changes_without_messages ON threads (archived, changed, id) WHERE has_messages = 0 AND known != 2;
CREATE TABLE messages (
    archived INTEGER, stamp TEXT, id TEXT, folded TEXT NOT NULL, packed BLOB NOT NULL,
    PRIMARY KEY (archived, stamp, id)
);
CREATE TABLE summaries (
    archived INTEGER, stamp TEXT, id TEXT, summary TEXT NOT NULL, PRIMARY KEY (archived, stamp, id)
) WITHOUT ROWID;
CREATE TABLE turns (
    device INTEGER, inode INTEGER, thread TEXT NOT NULL, saved BLOB NOT NULL, PRIMARY KEY (device, inode)
);
"""


class IndexFile:
    """A connection that is replaced when it fails. Whoever uses it holds `mutex`."""

    def __init__(self, home: Path) -> None:
        self.mutex = threading.RLock()
        self._path: Path | None = home / FILE_NAME
        self._connection: sqlite3.Connection | None = None
        self._rebuilt = False
        self.generation = 0
        """Number of indexes so far that began empty."""

    @property
    def in_memory(self) -> bool:
        return self._path is None

    def connection(self) -> sqlite3.Connection:
        """Return the connection, which is opened on first use. Raises `sqlite3.Error`."""
        if self._connection is None:
            self._connection = self._open_file() or self._open_memory()
            weakref.finalize(self, self._connection.close)
        return self._connection

    def replace(self, error: sqlite3.Error) -> None:
        """Replace the index after this error: by a new file if the old one was damaged, else by an index in memory."""
        log.warning("the index of threads is made anew: %s", error)
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        # A damaged file raises `DatabaseError` itself. Its subclasses are for locks, disks and permissions.
        if self._path is None or self._rebuilt or type(error) is not sqlite3.DatabaseError:
            self._path = None
        else:
            self._rebuilt = True
            _remove(self._path)

    def unless_busy(self, ask: Callable[[], Result]) -> Result | None:
        """Return the result of `ask`, which uses the connection; None if another thread or server uses the index, or if
        it is in memory or cannot be used. Waits for nobody.
        """
        if not self.mutex.acquire(blocking=False):
            return None
        try:
            with _impatient(self.connection()):
                return None if self.in_memory else ask()
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.ProgrammingError):
                raise
            if type(error) is sqlite3.DatabaseError:
                self.replace(error)
            return None
        finally:
            self.mutex.release()

    def _open_file(self) -> sqlite3.Connection | None:
        if self._path is None:
            return None
        for _ in range(2):
            try:
                _make_private(self._path)
                _remove(self._path.with_name(OLDER_NAME))
                connection = _prepared(f"file:{quote(str(self._path))}?mode=rw")
            except OSError as error:
                log.info("the index of threads cannot be opened: %s", error)
                return None
            except sqlite3.Error as error:
                log.warning("the index of threads is made anew: %s", error)
                if type(error) is not sqlite3.DatabaseError:
                    return None
                connection = None  # the file is damaged
            if connection is not None:
                self.generation += 1
                return connection
            _remove(self._path)
        return None

    def _open_memory(self) -> sqlite3.Connection:
        self._path = None
        connection = _prepared("file::memory:")
        assert connection is not None  # a database in memory has no other version
        self.generation += 1
        return connection


@contextmanager
def _impatient(connection: sqlite3.Connection) -> Iterator[None]:
    """Do not wait in the block for other servers: what needs a lock raises `sqlite3.OperationalError`."""
    connection.execute("PRAGMA busy_timeout = 0")
    try:
        yield
    finally:
        with suppress(sqlite3.Error):  # it was replaced
            connection.execute(f"PRAGMA busy_timeout = {int(BUSY_SECONDS * 1000)}")


def _make_private(path: Path) -> None:
    """Create the file, private to its owner. Raises OSError if the path is not a regular file."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(f"{path} is not a regular file")
        os.fchmod(fd, 0o600)
    finally:
        os.close(fd)


def _prepared(uri: str) -> sqlite3.Connection | None:
    """Open a database with the tables; None if it has those of another version. Raises `sqlite3.Error`."""
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
