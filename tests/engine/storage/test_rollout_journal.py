"""The files beside rollouts: the journal and the history of messages."""

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.engine.config.config_values import HistoryConfig, HistoryPersistence
from app_server.engine.storage import history_file
from app_server.engine.storage.disk import (
    REAL_DISK,
    end_of_text,
    make_private_folders,
    open_for_append,
    open_for_reading,
)
from app_server.engine.storage.history_file import MessageHistory
from app_server.engine.storage.journal import leftover_of
from app_server.engine.storage.journal_file import RolloutJournal
from app_server.engine.storage.rollout_names import journal_path
from app_server.engine.support.engine_errors import RolloutUnreadable, describe
from app_server_protocol.engine.notices import HistoryEntry
from app_server_protocol.responses import ResponseItem
from app_server_protocol.rollout import stored_line
from app_server_protocol.values import replace
from tests.engine.storage.stored import assistant, now, texts, user

STAMP = "2026-01-02T03:04:05.678Z"


def journal_in(folder: Path) -> tuple[RolloutJournal, Path]:
    path = journal_path(folder / "rollout")
    return RolloutJournal(path, REAL_DISK), path


def left(journal: Path, *recorded: ResponseItem, before: int = 0) -> list[str]:
    """Return what is left of a journal beside a rollout with these items. `before` is the number of bytes
    before them.
    """
    rollout = journal.with_name("rollout")
    lines = b"".join(stored_line(STAMP, item) + b"\n" for item in recorded)
    rollout.write_bytes(b"x" * before + lines)
    return texts(leftover_of(rollout).items)


# --- the journal
def test_a_journal_holds_the_items_that_are_not_recorded(tmp_path: Path) -> None:
    journal, path = journal_in(tmp_path)
    one, two = assistant("one"), assistant("two")
    journal.hold([one], lambda: 10, now)
    journal.hold([one, two], lambda: 20, now)
    assert path.read_bytes().decode().splitlines() == [
        f'{{"timestamp":"{STAMP}","type":"response_item","after":{after},"payload":{item.to_json().decode()}}}'
        for after, item in ((10, one), (20, two))
    ]
    assert left(path) == ["one", "two"]
    journal.hold([], lambda: 0, now)
    assert path.read_bytes() == b""
    assert left(path) == []
    journal.hold([one], lambda: 30, now)
    assert left(path) == ["one"], "it is not taken for the one before"
    journal.close()
    assert path.exists()


def test_equal_items_are_held_one_by_one(tmp_path: Path) -> None:
    journal, path = journal_in(tmp_path)
    journal.hold([assistant("same"), assistant("same")], lambda: 0, now)
    assert left(path) == ["same", "same"]
    assert left(path, assistant("same")) == ["same"]
    assert left(path, assistant("same"), assistant("same")) == []


def test_only_what_was_recorded_after_the_item_was_held_stands_for_it(tmp_path: Path) -> None:
    journal, path = journal_in(tmp_path)
    journal.hold([assistant("a")], lambda: 100, now)
    assert left(path, assistant("a"), before=100) == []
    assert left(path, assistant("a"), before=99) == ["a"]


def test_a_journal_without_items_is_removed_when_it_is_closed(tmp_path: Path) -> None:
    journal, path = journal_in(tmp_path)
    journal.hold([], lambda: 0, now)
    assert journal.duplicate() == []
    journal.close()
    assert not path.exists()
    journal.hold([assistant("a")], lambda: 0, now)
    [fd] = journal.duplicate()
    assert os.fstat(fd).st_ino == path.stat().st_ino
    os.close(fd)
    journal.hold([], lambda: 0, now)
    assert journal.duplicate() == []
    journal.close()
    assert not path.exists()
    journal.close()


def test_the_journal_of_an_earlier_server_is_discarded(tmp_path: Path) -> None:
    journal, path = journal_in(tmp_path)
    journal.discard()
    path.write_text("old")
    journal.discard()
    assert not path.exists()


@pytest.mark.parametrize("tail", [b"torn", b"torn\0\0", b"ended\n\0\0", b"\0"])
def test_a_journal_goes_on_behind_what_a_crash_left(tmp_path: Path, tail: bytes) -> None:
    journal, path = journal_in(tmp_path)
    path.write_bytes(tail)
    journal.hold([assistant("new")], lambda: 0, now)
    assert left(path) == ["new"]
    assert b"\n\n" not in path.read_bytes()


def test_an_item_that_does_not_fit_on_the_disk_is_held_again(tmp_path: Path) -> None:
    room = [10]
    disk = replace(REAL_DISK, write=lambda fd, data: os.write(fd, data[: room[0]]))
    path = journal_path(tmp_path / "rollout")
    journal = RolloutJournal(path, disk)
    with pytest.raises(OSError, match="No space left") as error:
        journal.hold([assistant("a")], lambda: 0, now)
    assert error.value.errno == errno.ENOSPC
    assert path.read_bytes() == b""
    room[0] = 10_000
    journal.hold([assistant("a")], lambda: 0, now)
    assert left(path) == ["a"]


def test_no_journal_leaves_nothing(tmp_path: Path) -> None:
    path = journal_path(tmp_path / "rollout")
    assert left(path) == []
    path.mkdir()
    assert left(path) == []
    path.rmdir()
    path.write_bytes(b"no journal\n")
    assert left(path, user("x")) == []


def test_a_journal_that_cannot_be_read_now_is_no_missing_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, path = journal_in(tmp_path)
    journal.hold([assistant("one")], lambda: 0, now)
    real = os.pread

    def failing(fd: int, size: int, offset: int) -> bytes:
        if os.fstat(fd).st_ino == path.stat().st_ino:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(fd, size, offset)

    monkeypatch.setattr(os, "pread", failing)
    with pytest.raises(RolloutUnreadable, match="input/output error"):
        left(path)
    monkeypatch.undo()
    assert left(path) == ["one"]


# --- files
def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_a_new_file_is_private_and_an_old_one_stays_as_it_is(tmp_path: Path) -> None:
    before = os.umask(0o777)
    try:
        os.close(open_for_append(REAL_DISK, tmp_path / "a/b/new", create=True))
    finally:
        os.umask(before)
    assert [mode(tmp_path / name) for name in ("a", "a/b", "a/b/new")] == [0o700, 0o700, 0o600]
    (tmp_path / "old").touch(0o644)
    os.close(open_for_append(REAL_DISK, tmp_path / "old", create=False))
    assert mode(tmp_path / "old") == 0o644
    with pytest.raises(FileNotFoundError):
        open_for_append(REAL_DISK, tmp_path / "none", create=False)


def test_folders_that_exist_keep_their_rights(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o755)
    make_private_folders(tmp_path / "shared/a")
    make_private_folders(tmp_path / "shared/a")
    assert [mode(tmp_path / name) for name in ("shared", "shared/a")] == [0o755, 0o700]


def test_files_are_opened_at_their_end_closed_on_exec_and_without_following_links(tmp_path: Path) -> None:
    path, link = tmp_path / "file", tmp_path / "link"
    path.write_text("one")
    link.symlink_to(path)
    fd = open_for_append(REAL_DISK, path, create=False)
    os.write(fd, b" two")
    assert not os.get_inheritable(fd)
    os.close(fd)
    fd = open_for_reading(path)
    assert os.read(fd, 100) == b"one two"
    assert not os.get_inheritable(fd)
    os.close(fd)
    with pytest.raises(OSError, match="symbolic links"):
        open_for_reading(link)
    with pytest.raises(OSError, match="symbolic links"):
        open_for_append(REAL_DISK, link, create=True)


def test_what_is_no_regular_file_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    count = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    with pytest.raises(RolloutUnreadable, match=r"pipe is not a regular file$"):
        open_for_reading(tmp_path / "pipe")
    with pytest.raises(RolloutUnreadable, match=r"pipe is not a regular file$"):
        open_for_append(REAL_DISK, tmp_path / "pipe", create=False)
    if count:
        assert len(os.listdir("/proc/self/fd")) == count, "it is closed again"


@given(st.integers(0, 3), st.sampled_from([0, 1, 5, 65535, 65536, 65537, 140_000]))
def test_the_end_of_the_text_is_before_the_nuls_behind_it(words: int, nuls: int) -> None:
    text = b"a\0b" * words
    fd = os.memfd_create("text") if hasattr(os, "memfd_create") else None
    if fd is None:
        pytest.skip("memfd_create")
    try:
        os.write(fd, text + b"\0" * nuls)
        assert end_of_text(fd, len(text) + nuls) == len(text)
    finally:
        os.close(fd)


def test_an_error_is_described_without_a_path() -> None:
    error = FileNotFoundError(errno.ENOENT, "No such file or directory", "/secret")
    assert describe(error) == "no such file or directory"
    assert describe(OSError("only a text")) == "oserror"


def entry(number: int, text: str = "") -> HistoryEntry:
    return HistoryEntry(conversation_id="c", ts=number, text=text or f"message {number}")


def filled(home: Path, count: int, max_bytes: int | None = None) -> MessageHistory:
    history = MessageHistory(home, HistoryConfig(max_bytes=max_bytes))
    for number in range(count):
        history.append(entry(number))
    return history


def test_messages_are_found_by_their_place(tmp_path: Path) -> None:
    history = filled(tmp_path, 3)
    log_id, count = history.metadata()
    assert count == 3
    assert [history.lookup(log_id, n) for n in (0, 2)] == [entry(0), entry(2)]
    assert history.lookup(log_id, 3) is None
    assert history.lookup(log_id, -1) is None
    assert history.lookup(log_id + 1, 0) is None


def test_nothing_is_kept_where_the_user_wants_none(tmp_path: Path) -> None:
    history = MessageHistory(tmp_path, HistoryConfig(persistence=HistoryPersistence.NONE))
    history.append(entry(1))
    assert history.metadata() == (0, 0)
    assert not history.path.exists()


def test_the_oldest_are_forgotten_beyond_the_limit_and_places_are_void(tmp_path: Path) -> None:
    history = filled(tmp_path, 3)
    before, _ = history.metadata()
    limited = MessageHistory(tmp_path, HistoryConfig(max_bytes=300))
    for number in range(3, 30):
        limited.append(entry(number))
        assert limited.path.stat().st_size <= 300
    log_id, count = limited.metadata()
    assert limited.lookup(log_id, count - 1) == entry(29)
    assert limited.lookup(before, 0) is None


def test_a_message_longer_than_the_limit_stays_alone(tmp_path: Path) -> None:
    history = filled(tmp_path, 3, max_bytes=100)
    history.append(entry(9, "x" * 500))
    log_id, count = history.metadata()
    assert (count, history.lookup(log_id, 0)) == (1, entry(9, "x" * 500))


def test_writers_at_the_same_time_lose_nothing_while_the_file_is_cut(tmp_path: Path) -> None:
    children = []
    for writer in range(4):
        child = os.fork()
        if child == 0:
            history = MessageHistory(tmp_path, HistoryConfig(max_bytes=100_000))
            for number in range(100):
                history.append(entry(writer * 1000 + number))
            os._exit(0)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
    assert MessageHistory(tmp_path, HistoryConfig()).metadata()[1] == 400


def test_what_is_no_file_is_no_history(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "history.jsonl")
    history = MessageHistory(tmp_path, HistoryConfig())
    assert history.metadata() == (0, 0)
    assert history.lookup(0, 0) is None


def test_a_line_has_the_form_of_codex(tmp_path: Path) -> None:
    history = filled(tmp_path, 1)
    history.append(HistoryEntry(conversation_id="d", ts=7, text="é\n"))
    assert history.path == tmp_path / "history.jsonl"
    assert history.path.read_text() == (
        '{"session_id":"c","ts":0,"text":"message 0"}\n{"session_id":"d","ts":7,"text":"\\u00e9\\n"}\n'
    )


@pytest.mark.parametrize(
    "line", ['{"session_id":5,"ts":1,"text":"x"}', '{"session_id":"c","ts":1}', "[]", "{"]
)
def test_a_line_in_another_form_is_no_message(tmp_path: Path, line: str) -> None:
    history = filled(tmp_path, 1)
    with history.path.open("a") as file:
        file.write(line + "\n")
    log_id, count = history.metadata()
    assert (count, history.lookup(log_id, 0), history.lookup(log_id, 1)) == (2, entry(0), None)


def test_places_are_void_in_another_file_and_in_one_with_another_begin(tmp_path: Path) -> None:
    history = filled(tmp_path, 1)
    log_id, _ = history.metadata()
    assert 0 < log_id < 2**53
    history.append(entry(1))
    assert history.metadata()[0] == log_id, "it grew at its end"
    whole = history.path.read_bytes()
    history.path.write_bytes(whole.replace(b"message 0", b"message 9"))
    assert history.metadata()[0] != log_id
    history.path.rename(tmp_path / "old")
    history.path.write_bytes(whole)
    assert history.metadata()[0] != log_id


def test_a_file_that_is_cut_has_the_newest_messages_and_room_for_more(tmp_path: Path) -> None:
    history = filled(tmp_path, 20)
    size = history.path.stat().st_size
    line = size / 20
    limited = MessageHistory(tmp_path, HistoryConfig(max_bytes=size))
    beside = tmp_path / ".history.jsonl.new"
    beside.write_text("of a server that crashed")
    limited.append(entry(20))
    kept = limited.path.read_bytes()
    assert size * 0.8 - line < len(kept) <= size * 0.8
    log_id, count = limited.metadata()
    assert [limited.lookup(log_id, n) for n in range(count)] == [entry(n) for n in range(21 - count, 21)]
    assert limited.path.stat().st_mode & 0o777 == 0o600
    assert not beside.exists()
    limited.append(entry(21))
    assert limited.path.read_bytes().startswith(kept), "there is room"


def test_a_file_of_the_allowed_size_is_not_cut(tmp_path: Path) -> None:
    size = filled(tmp_path / "other", 3).path.stat().st_size
    assert filled(tmp_path / "exact", 3, max_bytes=size).metadata()[1] == 3
    assert filled(tmp_path / "less", 3, max_bytes=size - 1).metadata()[1] == 2


def test_only_so_many_bytes_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    history = filled(tmp_path, 3)
    assert history.metadata()[1] == 3
    monkeypatch.setattr(history_file, "MAX_HISTORY_BYTES", 0)
    assert history.metadata()[1] == 0


def test_a_long_history_is_read_whole(tmp_path: Path) -> None:
    history = filled(tmp_path, 1)
    long = entry(1, "x" * (3 << 20))
    history.append(long)
    history.append(entry(2))
    log_id, count = history.metadata()
    assert (count, history.lookup(log_id, 1) == long, history.lookup(log_id, 2)) == (3, True, entry(2))
