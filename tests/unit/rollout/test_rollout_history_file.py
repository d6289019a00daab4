import os
from pathlib import Path

import pytest

from app_server.core.config.types import HistoryConfig, HistoryPersistence
from app_server.core.rollout import history_file
from app_server.core.rollout.history_file import MessageHistory
from protocol.events.notices import HistoryEntry


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


def test_nobody_else_may_read_it(tmp_path: Path) -> None:
    assert filled(tmp_path, 1).path.stat().st_mode & 0o777 == 0o600


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


def test_a_torn_line_affects_no_other(tmp_path: Path) -> None:
    history = filled(tmp_path, 1)
    with history.path.open("ab") as file:
        file.write(b'{"session_id":"c","ts":')
    history.append(entry(2))
    log_id, count = history.metadata()
    assert count == 3
    assert history.lookup(log_id, 1) is None
    assert history.lookup(log_id, 2) == entry(2)


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


def test_a_message_that_does_not_fit_on_the_disk_is_not_stored_in_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history, write = filled(tmp_path, 1), os.write
    before = history.path.read_bytes()
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:5]))
    with pytest.raises(OSError, match="No space left"):
        history.append(entry(1))
    assert history.path.read_bytes() == before


def test_a_new_home_is_private(tmp_path: Path) -> None:
    filled(tmp_path / "a/home", 1)
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("a", "a/home")] == [0o700, 0o700]


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
