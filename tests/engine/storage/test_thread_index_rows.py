"""The index of stored threads in its parts: rows, queries, changes on the disk, and the file itself."""

import os
import sqlite3
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import astuple

from app_server.engine.storage import index_file, thread_rows
from app_server.engine.storage.index_file import FILE_NAME, VERSION, IndexFile
from app_server.engine.storage.pagination import ListKey, ListRequest, ListStart, StoredHead, ThreadFilter
from app_server.engine.storage.rollout_names import RolloutName, stored_path
from app_server.engine.storage.thread_index import IndexChanges, file_state, find_changes
from app_server.engine.storage.thread_summary import FileState, StoredThread
from app_server_protocol.encoding import Json
from app_server_protocol.ids import ConversationId, SessionOrigin
from app_server_protocol.rollout import GitInfo
from tests.engine.storage.stored import conversation_id, head

DAY = 24 * 3600 * 10**9
NOW = 1_800_000_000 * 10**9
STATE = FileState(1, 2, 3, 4)
PATH = Path("/home/r.jsonl")

texts = st.text(max_size=10)
sources: st.SearchStrategy[Json] = st.one_of(
    st.sampled_from(SessionOrigin),
    st.just({"subagent": "review"}),
    texts.map(lambda name: {"subagent": {"other": name}}),
)
threads = st.builds(
    StoredThread,
    head=st.builds(
        StoredHead,
        id=st.integers(0, 10).map(conversation_id),
        preview=texts,
        timestamp=texts,
        provider=texts,
        cwd=texts,
        cli_version=texts,
        source=sources,
        git=st.none()
        | st.builds(
            GitInfo,
            commit_hash=st.none() | texts,
            branch=st.none() | texts,
            repository_url=st.none() | texts,
        ),
        originator=texts,
        forked_from=st.none() | texts,
        model=st.none() | texts,
        effort=st.none() | texts,
    ),
    path=st.just(PATH),
    state=st.just(STATE),
)


def thread(n: int = 1, state: FileState = STATE, **over: Json) -> StoredThread:
    """Return a stored thread. `over` replaces fields of its head."""
    return StoredThread(head(**{"id": conversation_id(n), "preview": f"question {n}", **over}), PATH, state)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    file = IndexFile(tmp_path)
    yield file.connection()
    file.connection().close()


def stamp(n: int) -> str:
    return f"2026-01-{1 + n // 10:02}T00-00-{n % 10:02}"


def key(n: int, archived: int = 0) -> tuple[int, str, str]:
    return archived, stamp(n), conversation_id(n)


def put(database: sqlite3.Connection, n: int, stored: StoredThread | None, *, archived: int = 0) -> None:
    state = FileState(1, 2, 1000 + n, 4) if stored is None else stored.state
    IndexChanges(new=[(*key(n, archived), thread_rows.UNREAD, *astuple(state))]).store(database)
    thread_rows.note(database, key(n, archived), state, stored)


def rows(database: sqlite3.Connection, select: str = "id, known FROM threads") -> list[tuple[object, ...]]:
    return database.execute(f"SELECT {select} ORDER BY id").fetchall()


# --- rows
@given(threads)
def test_a_thread_is_read_as_it_was_noted(stored: StoredThread) -> None:
    assert thread_rows.from_summary(thread_rows.to_summary(stored), PATH, STATE) == stored


@pytest.mark.parametrize(
    "summary", ["", "{", "{}", "[]", "5", "null", thread_rows.to_summary(thread())[:-1] + ",1]"]
)
def test_what_was_not_noted_by_this_index_is_none(summary: str) -> None:
    assert thread_rows.from_summary(summary, PATH, STATE) is None


@given(st.text())
def test_text_is_cleaned_of_what_the_database_cannot_hold(text: str) -> None:
    cleaned = thread_rows.clean(text)
    assert len(cleaned) == len(text)
    database = sqlite3.connect(":memory:")
    assert database.execute("SELECT ?, instr(?, ?)", (cleaned, cleaned, cleaned)).fetchone()[0] == cleaned
    database.close()


def test_the_columns_that_are_searched() -> None:
    stored = thread(source={"subagent": "review"}, provider="p\0", cwd="/a//b/", preview="ÄB" + "x" * 20_000)
    source, provider, cwd, text = thread_rows.columns(stored)
    assert (source, provider, cwd, text[:2]) == ("subagent_review", "p ", "/a/b", "äb")
    assert len(text) == thread_rows.SEARCHED_CHARACTERS


# --- queries


def test_a_place_beyond_all_times_is_no_error(database: sqlite3.Connection) -> None:
    put(database, 1, thread(1))
    start = ListStart(ListKey("9" * 20, conversation_id(1)), included=False)
    wanted = ThreadFilter(sources=frozenset({"cli"}), default_provider="default")
    query = thread_rows.IndexQuery.of(ListRequest(filter=wanted, by_change=True), ())
    assert [entry.name.conversation_id for entry in query.fetch(database, start, 100)] == [conversation_id(1)]


# --- changes on the disk
def changes(database: sqlite3.Connection, home: Path, **over: Json) -> list[int]:
    """Store the changes since the last call; return the numbers of new or changed threads."""
    options = {"now_ns": NOW, "archived": False, "whole": False, **over}
    found = find_changes(database, home, **options)
    found.store(database)
    return sorted(int(str(row[2])[-12:]) for row in found.new)


def rollout(home: Path, n: int, *, archived: bool = False, text: str = "x") -> Path:
    path = stored_path(home, RolloutName(stamp(n), ConversationId(conversation_id(n))), archived=archived)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def settle(*folders: Path, at: int = NOW - DAY) -> None:
    for folder in folders:
        os.utime(folder, ns=(at, at))


def test_only_folders_that_changed_are_compared(database: sqlite3.Connection, tmp_path: Path) -> None:
    first, second = rollout(tmp_path, 1), rollout(tmp_path, 11)
    settle(first.parent, second.parent)
    assert changes(database, tmp_path) == [1, 11]
    assert changes(database, tmp_path) == []
    first.write_text("longer")
    second.write_text("longer")
    settle(first.parent, second.parent)
    assert changes(database, tmp_path) == [], "the times of folders say nothing of changed files"
    assert changes(database, tmp_path, whole=True) == [1, 11]
    first.write_text("longer still")
    settle(first.parent, at=NOW - DAY // 2)
    second.write_text("longer still")
    settle(second.parent)
    assert changes(database, tmp_path) == [1]


def test_a_folder_that_changed_lately_is_compared_again(database: sqlite3.Connection, tmp_path: Path) -> None:
    path = rollout(tmp_path, 1)
    settle(path.parent, at=NOW - 1)
    assert changes(database, tmp_path) == [1]
    assert rows(database, "changed AS id FROM folders") == [(None,)]
    rollout(tmp_path, 2)
    settle(path.parent, at=NOW - 1)
    assert changes(database, tmp_path) == [2]
    settle(path.parent)
    assert changes(database, tmp_path) == []
    assert rows(database, "changed AS id FROM folders") == [(NOW - DAY,)]


def test_a_file_without_a_message_that_was_used_lately_is_looked_at(
    database: sqlite3.Connection, tmp_path: Path
) -> None:
    lately, long_ago = rollout(tmp_path, 1), rollout(tmp_path, 2)
    os.utime(lately, ns=(NOW - DAY + 1, NOW - DAY + 1))
    os.utime(long_ago, ns=(NOW - DAY, NOW - DAY))
    settle(lately.parent)
    changes(database, tmp_path)
    for n, path in ((1, lately), (2, long_ago)):
        state = file_state(path)
        assert state is not None
        thread_rows.note(database, key(n), state, None)
    assert changes(database, tmp_path) == []
    lately.write_text("the first turn")
    long_ago.write_text("the first turn")
    settle(lately.parent)
    assert changes(database, tmp_path) == [1]
    lately.unlink()
    settle(lately.parent)
    assert changes(database, tmp_path) == [], "a file that is gone is none that changed"


def test_the_state_of_a_file(tmp_path: Path) -> None:
    path = rollout(tmp_path, 1, text="four")
    os.utime(path, ns=(5, 7))
    status = path.stat()
    assert file_state(path) == FileState(status.st_ino, 4, 7, status.st_ctime_ns)
    (tmp_path / "link").symlink_to(path)
    for other in (tmp_path, tmp_path / "link", tmp_path / "none", Path("/x\0")):
        assert file_state(other) is None


def test_nothing_is_written_where_nothing_changed(database: sqlite3.Connection, tmp_path: Path) -> None:
    written: list[str] = []
    database.set_trace_callback(written.append)
    IndexChanges().store(database)
    assert written == []
    IndexChanges(folders=[(0, "2026-01-01", 5)]).store(database)
    IndexChanges(lost_folders=[(0, "2026-01-01")]).store(database)
    assert rows(database, "day AS id FROM folders") == []


# --- the file
def test_an_index_is_made_once_and_used_again(tmp_path: Path) -> None:
    file = IndexFile(tmp_path)
    put(file.connection(), 1, thread(1))
    assert (file.in_memory, file.generation) == (False, 1)
    assert file.connection() is file.connection()
    again = IndexFile(tmp_path)
    assert len(rows(again.connection())) == 1
    assert again.connection().execute("PRAGMA user_version").fetchone() == (VERSION,)
    assert stat.S_IMODE((tmp_path / FILE_NAME).stat().st_mode) == 0o600


def of_another_version(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE threads (x)")
        database.execute(f"PRAGMA user_version = {VERSION + 1}")
    database.close()


@pytest.mark.parametrize(
    ("spoil", "in_memory"),
    [
        (lambda path: path.write_bytes(b"no database " * 1000), False),
        (lambda path: path.write_bytes(b""), False),
        (of_another_version, False),
        (lambda path: path.mkdir(), True),
        (lambda path: path.symlink_to("/etc/passwd"), True),
        (os.mkfifo, True),
    ],
    ids=["garbage", "empty", "version", "folder", "link", "pipe"],
)
def test_an_index_that_cannot_be_used_is_made_anew(
    tmp_path: Path, spoil: Callable[[Path], object], in_memory: bool
) -> None:
    """The index is in memory if the existing file is not ours, which is left unchanged."""
    path = tmp_path / FILE_NAME
    spoil(path)
    before = path.lstat()
    file = IndexFile(tmp_path)
    assert (rows(file.connection()), file.in_memory) == ([], in_memory)
    if in_memory:
        file.replace(sqlite3.DatabaseError("damaged"))
        assert rows(file.connection()) == []
        assert os.path.samestat(path.lstat(), before)


def test_a_damaged_index_is_replaced_once_and_then_by_one_in_memory(tmp_path: Path) -> None:
    file = IndexFile(tmp_path)
    for generation, in_memory in ((1, False), (2, True)):
        put(file.connection(), 1, thread(1))
        assert file.generation == generation
        file.replace(sqlite3.DatabaseError("damaged"))
        assert rows(file.connection()) == []
        assert file.in_memory is in_memory
    assert file.generation == 3


def test_an_index_that_cannot_be_used_is_replaced_by_one_in_memory_and_stays(tmp_path: Path) -> None:
    file = IndexFile(tmp_path)
    put(file.connection(), 1, thread(1))
    file.replace(sqlite3.OperationalError("locked"))
    assert (rows(file.connection()), file.in_memory, file.generation) == ([], True, 2)
    assert len(rows(IndexFile(tmp_path).connection())) == 1


def test_a_path_with_odd_characters_is_that_path(tmp_path: Path) -> None:
    home = tmp_path / "a?b#c %20"
    home.mkdir()
    assert index_file.FILE_NAME not in os.listdir(home)
    IndexFile(home).connection()
    assert index_file.FILE_NAME in os.listdir(home)
