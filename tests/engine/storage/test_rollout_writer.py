import errno
import json
import os
import threading
from pathlib import Path

import pytest

from app_server.engine.storage import writer as writer_module
from app_server.engine.storage.disk import REAL_DISK
from app_server.engine.storage.rollout_names import journal_path, new_rollout_path
from app_server.engine.storage.rollout_reader import read_rollout
from app_server.engine.storage.writer import RolloutWriter
from app_server.engine.support.engine_errors import RolloutBusy
from app_server_protocol.responses import OtherItem
from app_server_protocol.values import replace
from tests.engine.storage.stored import (
    MOMENT,
    assistant,
    conversation,
    conversation_id,
    meta,
    now,
    store,
    texts,
    user,
)
from tests.support.full_disk import FullDisk


def new_path(home: Path) -> Path:
    return new_rollout_path(home, MOMENT, conversation_id(1))


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def test_a_new_rollout_exists_at_once_with_its_first_lines(tmp_path: Path) -> None:
    path = new_path(tmp_path)
    writer = RolloutWriter.create(path, now, [meta(), user("hello")])
    assert [line["type"] for line in lines(path)] == ["session_meta", "response_item"]
    assert lines(path)[0]["timestamp"] == "2026-01-02T03:04:05.678Z"
    writer.close()


def test_nobody_else_may_read_it_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        path = store(tmp_path / "home", [])
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o600
    for folder in (path.parent, tmp_path / "home" / "sessions", tmp_path / "home"):
        assert folder.stat().st_mode & 0o777 == 0o700


def test_an_item_of_no_known_kind_is_not_stored(tmp_path: Path) -> None:
    path = store(tmp_path, [OtherItem(type="novelty"), user("kept")])
    assert len(lines(path)) == 2


def test_a_torn_last_line_is_ended_before_the_next(tmp_path: Path) -> None:
    path = store(tmp_path, conversation())
    whole = path.read_bytes()
    for cut in range(len(whole) - len(whole.splitlines(keepends=True)[-1]) + 1, len(whole) + 1):
        path.write_bytes(whole[:cut])
        writer = RolloutWriter.resume(path, now)
        writer.append([user("new")])
        writer.close()
        assert "new" in texts(read_rollout(path).items)
        assert path.read_bytes().startswith(whole[:cut])
        assert json.loads(path.read_bytes()[cut:])["payload"] == user("new").to_value(), "nothing else"


@pytest.mark.parametrize("tail", [b"\0", b"\0" * 4096, b"\0" * 200_000, b'{"timestamp":"20\0\0\0'])
def test_a_tail_of_nuls_is_cut(tmp_path: Path, tail: bytes) -> None:
    path = store(tmp_path, conversation())
    path.write_bytes(path.read_bytes() + tail)
    writer = RolloutWriter.resume(path, now)
    writer.append([user("new")])
    writer.close()
    assert b"\0" not in path.read_bytes()
    assert texts(read_rollout(path).items) == ["question", "answer", "new"]


def test_a_line_that_somebody_else_left_torn_meanwhile_is_ended(tmp_path: Path) -> None:
    path = new_path(tmp_path)
    writer = RolloutWriter.create(path, now, [meta()])
    with path.open("ab") as stranger:
        stranger.write(b'{"timestamp":')
    writer.append([user("mine")])
    writer.close()
    assert texts(read_rollout(path).items) == ["mine"]


def test_what_a_failing_disk_has_but_for_the_line_end_is_not_written_twice(tmp_path: Path) -> None:
    """This holds wherever a write stops, if its bytes cannot be truncated."""

    def no_truncate(fd: int, size: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    for room in range(400):
        full = FullDisk(10_000)
        path = tmp_path / str(room) / new_path(tmp_path).name
        writer = RolloutWriter.create(path, now, [meta()], replace(full.disk(), ftruncate=no_truncate))
        full.room = room
        writer.append([user(f"line {n}") for n in range(3)])
        full.room = 10_000
        writer.append([user("after")])
        writer.close()
        assert texts(read_rollout(path).items) == ["line 0", "line 1", "line 2", "after"]


@pytest.mark.parametrize("room", range(0, 700, 13))
def test_a_full_disk_keeps_whole_lines_and_catches_up(tmp_path: Path, room: int) -> None:
    full = FullDisk(10_000)
    path = new_path(tmp_path)
    writer = RolloutWriter.create(path, now, [meta()], full.disk())
    full.room = room
    for number in range(4):
        writer.append([user(f"line {number}")])
    problem = writer.problem
    assert all(line["payload"] for line in lines(path)), "no line is torn"
    assert problem is None or problem == "no space left on device"
    full.room = 10_000
    writer.append([user("after")])
    assert writer.problem is None
    writer.close()
    assert texts(read_rollout(path).items) == ["line 0", "line 1", "line 2", "line 3", "after"]


def test_space_that_returns_is_used_at_the_next_flush(tmp_path: Path) -> None:
    full = FullDisk(10_000)
    path = new_path(tmp_path)
    writer = RolloutWriter.create(path, now, [meta()], full.disk())
    full.room = 0
    writer.append([user("held back")])
    before = writer.problem
    full.room = 10_000
    writer.flush()
    assert (before, writer.problem) == ("no space left on device", None)
    assert texts(read_rollout(path).items) == ["held back"]
    writer.close()


def test_a_deleted_file_is_reported(tmp_path: Path) -> None:
    path = new_path(tmp_path)
    writer = RolloutWriter.create(path, now, [meta()])
    path.unlink()
    writer.append([user("lost?")])
    assert writer.problem == "its file was deleted"
    writer.close()


def test_the_journal_is_empty_once_its_items_are_recorded(tmp_path: Path) -> None:
    path = new_path(tmp_path)
    writer = RolloutWriter.create(path, now, [meta()])
    item = assistant("told")
    writer.write_journal([item])
    assert b"told" in journal_path(path).read_bytes()
    writer.append([item])
    writer.write_journal([])
    assert journal_path(path).read_bytes() == b""
    writer.close()
    assert not journal_path(path).exists()


def test_the_journal_stays_while_its_items_wait_for_space(tmp_path: Path) -> None:
    full = FullDisk(10_000)
    path = new_path(tmp_path)
    writer = RolloutWriter.create(path, now, [meta()], full.disk())
    item = assistant("told")
    writer.write_journal([item])
    full.room = 0
    writer.append([item])
    writer.write_journal([])
    assert b"told" in journal_path(path).read_bytes()
    full.room = 10_000
    writer.flush()
    assert journal_path(path).read_bytes() == b""
    writer.close()


def test_appending_after_the_end_stores_nothing(tmp_path: Path) -> None:
    path = new_path(tmp_path)
    writer = RolloutWriter.create(path, now, [meta()])
    writer.close()
    writer.append([user("late")])
    writer.flush()
    writer.close()
    assert len(lines(path)) == 1


def test_a_flush_that_the_disk_delays_does_not_keep_others_from_the_file(tmp_path: Path) -> None:
    begun, answered = threading.Event(), threading.Event()

    def fsync(fd: int) -> None:
        begun.set()
        answered.wait()

    path = new_path(tmp_path)
    writer = RolloutWriter.create(path, now, [meta()], replace(REAL_DISK, fsync=fsync))
    flushing = threading.Thread(target=writer.flush)
    flushing.start()
    try:
        begun.wait()
        writer.close()
        RolloutWriter.resume(path, now).close()
    finally:
        answered.set()
        flushing.join()


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="open files are listed in /proc")
def test_what_was_opened_is_closed_again(tmp_path: Path) -> None:
    before = set(os.listdir("/proc/self/fd"))
    path = new_path(tmp_path)
    writer = RolloutWriter.create(path, now, [meta()])
    writer.write_journal([assistant("told")])
    opened = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        writer.flush()
    assert len(os.listdir("/proc/self/fd")) == opened
    with pytest.raises(RolloutBusy):
        RolloutWriter.resume(path, now)
    writer.close()
    assert set(os.listdir("/proc/self/fd")) == before


def test_a_flush_flushes_the_file_its_journal_and_new_names(tmp_path: Path) -> None:
    flushed: list[int] = []

    def fsync(fd: int) -> None:
        flushed.append(os.fstat(fd).st_ino)

    def inodes(*paths: Path) -> list[int]:
        return [each.stat().st_ino for each in paths]

    path = new_path(tmp_path)
    writer = RolloutWriter.create(path, now, [meta()], replace(REAL_DISK, fsync=fsync))
    writer.flush()
    assert flushed == inodes(path, path.parent)
    writer.flush()
    assert flushed[2:] == inodes(path)
    writer.write_journal([assistant("told")])
    writer.flush()
    assert flushed[3:] == inodes(path, journal_path(path), path.parent)
    writer.flush()
    assert flushed[6:] == inodes(path, journal_path(path))
    writer.close()


def test_a_flush_that_fails_is_a_problem_until_the_next_one(tmp_path: Path) -> None:
    failing = [True]

    def fsync(fd: int) -> None:
        if failing[0]:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    writer = RolloutWriter.create(new_path(tmp_path), now, [meta()], replace(REAL_DISK, fsync=fsync))
    writer.flush()
    problems = [writer.problem]
    failing[0] = False
    writer.flush()
    problems.append(writer.problem)
    assert problems == ["input/output error", None]
    writer.close()


def test_a_long_backlog_is_written_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "BATCH_BYTES", 300)
    full, written = FullDisk(10_000), list[int]()

    def write(fd: int, data: memoryview) -> int:
        written.append(len(data))
        return full.write(fd, data)

    path = new_path(tmp_path)
    writer = RolloutWriter.create(path, now, [meta()], replace(REAL_DISK, write=write))
    full.room = 0
    items = [user("x" * 50) for _ in range(6)]
    writer.append(items)
    full.room = 10_000
    del written[:]
    writer.append([])
    writer.close()
    size = len(path.read_bytes().splitlines(keepends=True)[-1])
    pieces = -(-300 // size)
    assert written == [size * pieces] * (6 // pieces) + ([size * (6 % pieces)] if 6 % pieces else [])
    assert texts(read_rollout(path).items) == ["x" * 50] * 6


def test_memory_is_bounded_and_losses_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = FullDisk(10_000)
    path = new_path(tmp_path)
    writer = RolloutWriter.create(path, now, [meta()], full.disk())
    full.room = 0
    monkeypatch.setattr(writer_module, "MAX_BACKLOG_BYTES", 300)
    writer.append([user("held"), user("lost"), user("lost")])
    problems = [writer.problem]
    full.room = 10_000
    writer.flush()
    problems.append(writer.problem)
    assert problems == ["no space left on device; 2 lines were lost", "2 lines were lost"]
    writer.close()
    assert texts(read_rollout(path).items) == ["held"]


def test_a_write_that_takes_nothing_is_an_error(tmp_path: Path) -> None:
    writer = RolloutWriter.create(
        new_path(tmp_path), now, [meta()], replace(REAL_DISK, write=lambda fd, data: 0)
    )
    assert writer.problem == "input/output error"
    writer.close()


def test_who_writes_already_is_named(tmp_path: Path) -> None:
    odd = tmp_path / "odd"
    odd.write_text("")
    path = store(tmp_path, [])
    for busy, name in ((odd, f"rollout {odd}"), (path, f"conversation {conversation_id(1)}")):
        first = RolloutWriter.resume(busy, now)
        with pytest.raises(RolloutBusy, match=rf"^{name} already has an active writer$"):
            RolloutWriter.resume(busy, now)
        first.close()
    first = RolloutWriter.resume(path, now)
    second = RolloutWriter.create(path, now, [user("x")])
    assert second.problem == f"conversation {conversation_id(1)} already has an active writer"
    first.close()
    second.close()
