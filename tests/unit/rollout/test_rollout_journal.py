"""The journal beside a rollout, and how its files are opened."""

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.core.errors import RolloutUnreadable, describe
from app_server.core.rollout.disk import (
    REAL_DISK,
    end_of_text,
    make_private_folders,
    open_for_append,
    open_for_reading,
    size_and_links,
)
from app_server.core.rollout.journal import RolloutJournal, leftover_items
from protocol.responses import ResponseItem
from protocol.rollout import stored_line
from protocol.structs import replace
from tests.unit.rollout.stored import assistant, now, texts, user

STAMP = "2026-01-02T03:04:05.678Z"


def journal_in(folder: Path) -> tuple[RolloutJournal, Path]:
    path = folder / "journal"
    return RolloutJournal(path, REAL_DISK), path


def left(journal: Path, *recorded: ResponseItem, before: int = 0) -> list[str]:
    """What is left over of a journal beside a rollout with these items; `before`: bytes before them."""
    rollout = journal.with_name("rollout")
    lines = b"".join(stored_line(STAMP, item) + b"\n" for item in recorded)
    rollout.write_bytes(b"x" * before + lines)
    fd = os.open(rollout, os.O_RDONLY)
    try:
        return texts(leftover_items(journal, fd))
    finally:
        os.close(fd)


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
    path = tmp_path / "journal"
    journal = RolloutJournal(path, disk)
    with pytest.raises(OSError, match="No space left") as error:
        journal.hold([assistant("a")], lambda: 0, now)
    assert error.value.errno == errno.ENOSPC
    assert path.read_bytes() == b""
    room[0] = 10_000
    journal.hold([assistant("a")], lambda: 0, now)
    assert left(path) == ["a"]


def test_no_journal_leaves_nothing(tmp_path: Path) -> None:
    assert left(tmp_path / "none") == []
    (tmp_path / "folder").mkdir()
    assert left(tmp_path / "folder") == []
    (tmp_path / "other").write_bytes(b"no journal\n")
    assert left(tmp_path / "other", user("x")) == []


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


def test_size_and_links_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("four")
    with path.open() as file:
        assert size_and_links(file.fileno()) == (4, 1)
        path.unlink()
        assert size_and_links(file.fileno()) == (4, 0)


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
