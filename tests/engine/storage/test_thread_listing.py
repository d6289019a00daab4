"""Pages of stored threads: orders, filters, and an index that stays right whatever happens to it or to the files."""

import os
import shutil
import sqlite3
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from app_server.engine.storage import thread_index, thread_listing
from app_server.engine.storage.index_file import FILE_NAME
from app_server.engine.storage.pagination import InvalidCursor, ListRequest, Page, ThreadFilter, ThreadSummary
from app_server.engine.storage.rollout_files import walk
from app_server.engine.storage.rollout_names import ARCHIVED, RolloutName, parse_rollout_name
from app_server.engine.storage.stored_conversations import archive_rollout, delete_rollout, unarchive_rollout
from app_server.engine.storage.thread_index import IndexReplaced, ThreadIndex
from app_server.engine.storage.thread_listing import ThreadLists
from app_server.engine.storage.thread_summary import MetadataStore, StoredThread, read_stored_thread
from app_server_protocol.encoding import Json
from tests.engine.storage.stored import conversation_id, raw_line


@pytest.fixture(autouse=True)
def _index_is_kept(caplog: pytest.LogCaptureFixture, request: pytest.FixtureRequest) -> Iterator[None]:
    """Check that no index was replaced. An index that fails is replaced, which would hide its errors."""
    yield
    replaced = [
        record.getMessage() for record in caplog.get_records("call") if "made anew" in record.getMessage()
    ]
    assert not replaced or "made_anew" in request.node.name or "locked" in request.node.name


def path_of(home: Path, n: int) -> Path:
    day = f"2026-01-{1 + n % 3:02d}"
    name = RolloutName(f"{day}T00-00-{n % 60:02d}", conversation_id(n))
    return home / "sessions" / day.replace("-", "/") / name.file_name


def write(home: Path, n: int, text: str | None = None, *, changed: float | None = None, **meta: Json) -> Path:
    """Write a stored thread. An empty text makes one that was never used."""
    path = path_of(home, n)
    path.parent.mkdir(parents=True, exist_ok=True)
    said = f"question {n}" if text is None else text
    line = {
        "id": conversation_id(n),
        "timestamp": "2026-01-01T00:00:00.000Z",
        "cwd": "/work",
        "originator": "test",
        "cli_version": "1",
        "source": "vscode",
        "model_provider": "mock",
        **meta,
    }
    lines = raw_line("session_meta", line)
    if said:
        lines += raw_line("event_msg", {"type": "user_message", "message": said})
    path.write_bytes(lines)
    if changed is not None:
        os.utime(path, (changed, changed))
    return path


def notes(home: Path) -> MetadataStore:
    return MetadataStore(home, lambda: 0.0)


def lists(home: Path) -> ThreadLists:
    return ThreadLists(home, notes(home), time.time)


def wanted(**over: Json) -> ThreadFilter:
    return ThreadFilter(**{"sources": frozenset({"cli", "vscode"}), "default_provider": "mock", **over})


def page(of: ThreadLists, **request: Json) -> Page[ThreadSummary]:
    filter = {name: request.pop(name) for name in list(request) if name in ThreadFilter.__struct_fields__}
    return of.page(ListRequest(filter=wanted(**filter), **request))


def previews(of: ThreadLists, **request: Json) -> list[str]:
    return [thread.preview for thread in page(of, limit=100, **request).rows]


def numbers(found: Page[ThreadSummary]) -> list[int]:
    return [int(thread.id[-12:]) for thread in found.rows]


# --- orders and pages
@pytest.mark.parametrize("by_change", [False, True])
@pytest.mark.parametrize("newest_first", [False, True])
@pytest.mark.parametrize("archived", [False, True])
def test_pages_lead_to_the_end_and_back(
    tmp_path: Path, by_change: bool, newest_first: bool, archived: bool
) -> None:
    for n in range(7):
        path = write(tmp_path, n, changed=1000 - n // 2)  # each modification time belongs to two threads
        if archived:
            archive_rollout(tmp_path, conversation_id(n), path)
    of, order = lists(tmp_path), {"by_change": by_change, "archived": archived}
    seen: list[int] = []
    cursor, back = None, None
    for _ in range(3):
        found = page(of, limit=3, newest_first=newest_first, cursor=cursor, **order)
        seen += numbers(found)
        cursor, back = found.next_cursor, found.backwards_cursor
    assert cursor is None
    key: Callable[[int], tuple[int, int]] = (
        (lambda n: (-(n // 2), n)) if by_change else (lambda n: (n % 3, n))
    )
    assert seen == sorted(range(7), key=key, reverse=newest_first)
    # The backward direction begins with the first thread of the last page.
    again = page(of, limit=100, newest_first=not newest_first, cursor=back, **order)
    assert numbers(again) == seen[:7][::-1]


def test_a_cursor_stays_good_while_threads_come_and_go(tmp_path: Path) -> None:
    paths = [write(tmp_path, n * 3) for n in range(4)]
    of = lists(tmp_path)
    first = page(of, limit=2)
    assert numbers(first) == [9, 6]
    paths[2].unlink()
    write(tmp_path, 12)
    assert numbers(page(of, limit=2, cursor=first.next_cursor)) == [3, 0]
    assert numbers(page(of, limit=2, search="question", cursor=first.next_cursor)) == [3, 0]


@pytest.mark.parametrize("cursor", ["", "x", "2026-01-01T00-00-00|", "1|" + conversation_id(1), "9" * 1000])
def test_other_cursors_are_refused(tmp_path: Path, cursor: str) -> None:
    for by_change in (False, True):
        with pytest.raises(InvalidCursor) as error:
            page(lists(tmp_path), cursor=cursor, by_change=by_change)
        assert len(str(error.value)) < 200
    with pytest.raises(InvalidCursor):
        page(lists(tmp_path), cursor=f"2026-01-01T00-00-00|{conversation_id(1)}", by_change=True)


# --- filters
def test_filters(tmp_path: Path) -> None:
    write(tmp_path, 0, "find the Needle", cwd="/work/")
    write(tmp_path, 3, "other", cwd="/elsewhere", model_provider=None)
    write(tmp_path, 6, "straw", source="exec", model_provider="far")
    write(tmp_path, 9, "")
    notes(tmp_path).set_name(conversation_id(3), "Näedle work")
    of = lists(tmp_path)
    assert previews(of) == ["other", "find the Needle"]
    assert previews(of, search="needle") == ["find the Needle"]
    assert previews(of, search="NÄEDLE") == ["other"]
    assert previews(of, search="e") == ["other", "find the Needle"]
    assert previews(of, search="_e%") == []
    assert previews(of, search="\0\ud800") == []
    assert previews(of, cwds=frozenset({"/work"})) == ["find the Needle"]
    assert previews(of, cwds=frozenset()) == []
    assert previews(of, providers=frozenset({"mock"}), search="") == ["other", "find the Needle"]
    assert previews(of, providers=frozenset({"far"}), sources=frozenset({"exec"})) == ["straw"]
    assert previews(of, excluded=frozenset({conversation_id(3)}), by_change=True) == ["find the Needle"]
    assert previews(of, excluded=frozenset({conversation_id(0)})) == ["other"]
    for by_change in (True, False):
        two = frozenset({conversation_id(0), conversation_id(6), conversation_id(20)})
        assert previews(of, included=two, by_change=by_change) == ["find the Needle"]
        assert previews(of, included=two, excluded=two, by_change=by_change) == []


def test_where_most_threads_do_not_match_the_index_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thread_listing, "MOST_PASSED_BY", 8)
    for n in range(9):
        write(tmp_path, n, source="exec" if n else "cli")
    assert previews(lists(tmp_path)) == ["question 0"]
    assert not (tmp_path / FILE_NAME).exists(), "so many may be passed by"
    monkeypatch.setattr(thread_listing, "MOST_PASSED_BY", 7)
    for n in range(9):
        write(tmp_path, n, source="exec" if n else "cli")
    of = lists(tmp_path)
    assert previews(of) == ["question 0"]
    assert (tmp_path / FILE_NAME).exists()
    assert previews(of, sources=frozenset({"exec"})) == [f"question {n}" for n in (8, 5, 2, 7, 4, 1, 6, 3)]


def test_odd_text_is_kept(tmp_path: Path) -> None:
    write(tmp_path, 0, "half \ud83d a character \0 and more", cwd="/\udcff")
    of = lists(tmp_path)
    for _ in range(2):
        [thread] = page(of, search="AND MORE").rows
        assert (thread.preview, thread.cwd) == ("half \ud83d a character \0 and more", "/\udcff")


# --- changes meanwhile
def test_what_happens_beside_is_seen(tmp_path: Path) -> None:
    of, other = lists(tmp_path), lists(tmp_path)
    write(tmp_path, 0, changed=10)
    assert previews(of, search="question") == previews(other, by_change=True) == ["question 0"]
    new = write(tmp_path, 3, changed=5)
    assert previews(of, by_change=True) == ["question 0", "question 3"]
    os.utime(new, (20, 20))
    assert previews(other, by_change=True) == ["question 3", "question 0"]
    write(tmp_path, 0, "rewritten")
    assert previews(of, search="written") == ["rewritten"]
    new.unlink()
    assert previews(other, search="3") == []
    moved = path_of(tmp_path, 0)
    moved.rename(path_of(tmp_path, 6))
    assert previews(of, search="written") == previews(other, by_change=True) == ["rewritten"]
    shutil.rmtree(tmp_path / "sessions")
    assert previews(of, search="written") == previews(other, by_change=True) == []


def test_a_thread_is_found_after_its_first_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_index, "MOST_REST_SECONDS", 3600.0)
    monkeypatch.setattr(thread_index, "REST", 1e9)  # files are checked only once
    path, of = write(tmp_path, 0, ""), lists(tmp_path)
    os.utime(path.parent, (1, 1))
    assert previews(of, search="first") == []
    with path.open("ab") as file:
        file.write(raw_line("event_msg", {"type": "user_message", "message": "first words"}))
    assert previews(of, search="first") == ["first words"]


def read_all(of: ThreadLists) -> ThreadLists:
    while of.read_ahead() is not None:
        pass
    return of


def test_a_page_in_the_order_of_starts_reads_no_head_that_the_index_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [write(tmp_path, n, changed=n) for n in range(3)]
    write(tmp_path, 3, "", changed=3)
    of = read_all(lists(tmp_path))
    read: list[Path] = []

    def counted(path: Path) -> StoredThread:
        read.append(path)
        return read_stored_thread(path)

    monkeypatch.setattr(thread_index, "read_stored_thread", counted)
    monkeypatch.setattr(thread_listing, "read_stored_thread", counted)
    assert previews(of) == [f"question {n}" for n in (2, 1, 0)]
    assert read == []
    new, changed = write(tmp_path, 5), write(tmp_path, 3, "first words", changed=9)
    paths[1].unlink()
    assert previews(of) == ["question 5", "question 2", "first words", "question 0"]
    assert sorted(read) == sorted([new, changed])


def test_a_page_in_the_order_of_starts_does_not_wait_for_the_index(tmp_path: Path) -> None:
    write(tmp_path, 0)
    of = read_all(lists(tmp_path))
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with of.index.get()._mutex:
            held.set()
            done.wait(60)

    holder = threading.Thread(target=hold)
    holder.start()
    try:
        held.wait(60)
        assert previews(of) == ["question 0"]
    finally:
        done.set()
        holder.join()


def test_a_page_in_the_order_of_starts_does_not_wait_for_other_servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index is in use, and stays in its file."""
    monkeypatch.setattr("app_server.engine.storage.index_file.BUSY_SECONDS", 3600.0)
    write(tmp_path, 0)
    of = read_all(lists(tmp_path))
    with closing(sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        write(tmp_path, 3)
        assert previews(of) == ["question 3", "question 0"]
        other.execute("ROLLBACK")
    assert previews(of) == previews(of, search="question") == ["question 3", "question 0"]
    assert not of.index.get()._file.in_memory
    assert of.index.get()._file.connection().execute("PRAGMA busy_timeout").fetchone() == (3_600_000,)


@pytest.mark.parametrize("share", [0.2, 0.6])
def test_a_page_in_the_order_of_starts_is_right_while_a_damaged_index_is_made_anew(
    tmp_path: Path, share: float
) -> None:
    for n in range(60):
        write(tmp_path, n)
    of = read_all(lists(tmp_path))
    everything = previews(of)
    of.index.get()._file.connection().execute("PRAGMA wal_checkpoint(TRUNCATE)")
    path = tmp_path / FILE_NAME
    data = bytearray(path.read_bytes())
    start = int(len(data) * share)
    data[start:] = b"\x55" * len(data[start:])
    path.write_bytes(data)
    of.index.get()._file.connection().execute("PRAGMA shrink_memory")
    assert len(everything) == 60
    for _ in range(3):
        assert previews(of) == everything


# --- the index itself
def test_the_index_is_private(tmp_path: Path) -> None:
    write(tmp_path, 0)
    (tmp_path / FILE_NAME).touch(0o644)
    of = lists(tmp_path)
    assert previews(of, search="question") == ["question 0"]
    for path in tmp_path.glob(f"{FILE_NAME}*"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("share", [0.0, 0.2, 0.6])
def test_an_index_that_is_damaged_while_it_is_used_is_made_anew(tmp_path: Path, share: float) -> None:
    for n in range(60):
        write(tmp_path, n)
    of = lists(tmp_path)
    everything = previews(of, search="question")
    del of
    path = tmp_path / FILE_NAME
    data = bytearray(path.read_bytes())
    start = int(len(data) * share)
    data[start : start + 20_000] = b"\x55" * len(data[start : start + 20_000])
    path.write_bytes(data)
    again = lists(tmp_path)
    assert previews(again, search="question") == everything
    assert previews(again, by_change=True, search="question 5") == previews(
        lists(tmp_path), by_change=True, search="question 5"
    )


def test_a_locked_index_stops_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app_server.engine.storage.index_file.BUSY_SECONDS", 0.01)
    write(tmp_path, 0)
    of = lists(tmp_path)
    assert previews(of, search="question") == ["question 0"]
    locked = sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)
    locked.execute("BEGIN IMMEDIATE")
    write(tmp_path, 3)
    assert previews(of, search="question") == ["question 3", "question 0"]
    assert previews(lists(tmp_path), search="question") == ["question 3", "question 0"]
    locked.close()


def test_an_index_that_is_made_anew_within_a_page_starts_the_page_anew(tmp_path: Path) -> None:
    for n in range(9):
        write(tmp_path, n)
    index = ThreadIndex(tmp_path, time.time)
    request, pages = ListRequest(filter=wanted(search="question"), limit=2), list[int]()

    def ask(index: ThreadIndex) -> int:
        candidates = index.candidates(request, None, [])
        pages.append(0)
        for _ in candidates:
            pages[-1] += 1
            if len(pages) == 1 and pages[0] == 2:  # another thread could not use it
                index._file.replace(sqlite3.OperationalError("locked"))
        return pages[-1]

    assert index.retried(ask) == 9
    assert pages == [3, 9]


def test_an_index_that_always_fails_is_given_up_in_the_end(tmp_path: Path) -> None:
    index, asked = ThreadIndex(tmp_path, time.time), list[ThreadIndex]()

    def fail(index: ThreadIndex) -> int:
        asked.append(index)
        raise IndexReplaced

    with pytest.raises(IndexReplaced):
        index.retried(fail)
    assert asked == [index] * 4

    def mistake(index: ThreadIndex) -> int:
        asked.append(index)
        raise sqlite3.ProgrammingError("a mistake of ours")

    with pytest.raises(sqlite3.ProgrammingError):
        index.retried(mistake)
    assert len(asked) == 5, "it is not tried again"


def test_what_was_read_ahead_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_listing, "HEADS_AHEAD", 4)
    paths = [write(tmp_path, n, "" if n == 5 else None) for n in range(10)]
    of = lists(tmp_path)
    assert of.read_ahead() is not None
    paths[0].unlink()
    rests = 1
    while of.read_ahead() is not None:
        rests += 1
    assert rests < 5

    def refuse(path: Path) -> None:
        raise AssertionError(f"{path} is read again")

    monkeypatch.setattr(thread_index, "read_stored_thread", refuse)
    assert len(previews(of, search="question")) == 8


def test_nothing_is_read_ahead_for_memory(tmp_path: Path) -> None:
    write(tmp_path, 0)
    (tmp_path / FILE_NAME).mkdir()
    of = lists(tmp_path)
    assert previews(of, search="question") == ["question 0"]
    assert of.read_ahead() is None


# --- one by id


# --- any changes
def plain(home: Path, **request: Json) -> list[str]:
    """List threads without an index: every file is read."""
    archived, by_change = request.get("archived", False), request.get("by_change", False)
    found = []
    for name, path in walk(home, archived=archived):
        head = read_stored_thread(path)
        shown = f"{head.head.preview}\n{notes(home).read().name(name.id) or ''}"
        if head.has_user_message and request.get("search", "").casefold() in shown.casefold():
            value = path.stat().st_mtime_ns if by_change else name.started
            found.append((value, name.id, head.head.preview))
    return [preview for *_, preview in sorted(found, reverse=True)]


class Changes(RuleBasedStateMachine):
    """Two servers list threads while threads are added, changed, moved and removed."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.home = Path(self.folder.name)
        self.servers = [lists(self.home), lists(self.home)]

    def teardown(self) -> None:
        self.folder.cleanup()

    def paths(self, folder: str) -> list[Path]:
        return sorted(self.home.glob(f"{folder}/**/rollout-*.jsonl"))

    @rule(n=st.integers(0, 6), text=st.sampled_from(["", "one", "two"]), changed=st.integers(1, 9))
    def write(self, n: int, text: str, changed: int) -> None:
        write(self.home, n, text, changed=changed)

    @rule(n=st.integers(0, 6), name=st.sampled_from(["One", "three"]))
    def name(self, n: int, name: str) -> None:
        notes(self.home).set_name(conversation_id(n), name)

    @rule()
    def archive(self) -> None:
        for path in self.paths("sessions")[:1]:
            name = parse_rollout_name(path.name)
            if name is not None and not (self.home / ARCHIVED / path.name).exists():
                archive_rollout(self.home, name.conversation_id, path)

    @rule()
    def unarchive(self) -> None:
        for path in self.paths(ARCHIVED)[:1]:
            if not any(each.name == path.name for each in self.paths("sessions")):
                unarchive_rollout(self.home, path)

    @rule()
    def delete(self) -> None:
        for path in self.paths("sessions")[-1:]:
            delete_rollout(self.home, path)

    @rule()
    def lose_the_index(self) -> None:
        for path in self.home.glob(f"{FILE_NAME}*"):
            path.unlink()
        self.servers[0] = lists(self.home)

    @rule(server=st.integers(0, 1))
    def read_ahead(self, server: int) -> None:
        while self.servers[server].read_ahead() is not None:
            pass

    @invariant()
    def both_list_what_is_there(self) -> None:
        requests: list[dict[str, Json]] = [
            {},
            {"search": "one"},
            {"by_change": True},
            {"archived": True, "search": "o"},
            {"archived": True, "by_change": True},
        ]
        for server in self.servers:
            for request in requests:
                assert previews(server, **request) == plain(self.home, **request)


TestChanges = Changes.TestCase
TestChanges.settings = settings(
    max_examples=10, stateful_step_count=12, deadline=None, suppress_health_check=list(HealthCheck)
)
