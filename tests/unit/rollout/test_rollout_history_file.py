from __future__ import annotations

import os
from pathlib import Path

from app_server.core.config.types import HistoryConfig, HistoryPersistence
from app_server.core.rollout.history_file import MessageHistory
from protocol.events.lookups import HistoryEntry


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
