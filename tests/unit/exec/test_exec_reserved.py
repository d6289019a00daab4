"""Names that are held while commands run: made, shared, given back, and never taken from somebody else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from app_server.core.exec.reserved import MARK_NS, ReservedNames, Taken


@pytest.fixture
def name(tmp_path: Path) -> bytes:
    return os.fsencode(tmp_path / ".git")


def test_a_name_is_held_by_a_marked_directory_until_the_last_has_given_it_back(name: bytes) -> None:
    names = ReservedNames()
    first, second = names.take([name]), names.take([name])
    assert first.held == second.held == (name,)
    assert os.stat(name).st_mtime_ns == MARK_NS
    names.give_back(first.held)
    assert os.path.isdir(name)
    names.give_back(second.held)
    assert not os.path.lexists(name)


def test_what_is_there_already_is_somebody_elses(name: bytes) -> None:
    os.mkdir(name)
    names = ReservedNames()
    taken = names.take([name])
    assert (taken.held, taken.found) == ((), (name,))
    names.give_back_all()
    assert os.path.isdir(name)


def test_who_found_a_name_takes_it_from_nobody_who_holds_it(name: bytes) -> None:
    """One command finds the directory of the user, who then removes it; the next one holds the name."""
    os.mkdir(name)
    names = ReservedNames()
    found = names.take([name])
    os.rmdir(name)
    held = names.take([name])
    assert held.held == (name,)
    names.give_back(found.held)
    assert os.path.isdir(name)
    names.give_back(held.held)
    assert not os.path.lexists(name)


def test_two_servers_share_a_directory(name: bytes) -> None:
    one, other = ReservedNames(), ReservedNames()
    taken, theirs = one.take([name]), other.take([name])
    assert taken.held == theirs.held == (name,)
    one.give_back(taken.held)
    assert os.path.isdir(name)
    again = one.take([name])
    assert again.held == (name,)
    other.give_back_all()
    assert os.path.isdir(name)
    one.give_back(again.held)
    assert not os.path.lexists(name)


def test_what_somebody_puts_into_it_stays(name: bytes) -> None:
    names = ReservedNames()
    taken = names.take([name])
    Path(os.fsdecode(name), "HEAD").write_text("ref: refs/heads/main\n")
    names.give_back(taken.held)
    assert os.listdir(name) == [b"HEAD"]


def test_a_folder_that_is_missing_holds_nothing(tmp_path: Path) -> None:
    taken = ReservedNames().take([os.fsencode(tmp_path / "missing" / ".git")])
    assert (taken.held, taken.found) == ((), ())


def test_a_link_is_not_followed(tmp_path: Path, name: bytes) -> None:
    target = tmp_path / "target"
    target.mkdir()
    os.utime(target, ns=(MARK_NS, MARK_NS))
    os.symlink(target, name)
    names = ReservedNames()
    assert names.take([name]) == Taken(held=(), found=(name,))
    target.rmdir()
    assert names.take([name]) == Taken(held=(), found=(name,))
    names.give_back_all()
    assert os.path.islink(name)


def test_what_a_killed_launcher_left_is_removed_by_the_next_and_nothing_else(tmp_path: Path) -> None:
    left, theirs = bytes(tmp_path / ".codex"), bytes(tmp_path / ".agents")
    os.mkdir(left)
    os.utime(left, ns=(MARK_NS, MARK_NS))
    os.mkdir(theirs)
    reserved = ReservedNames()
    assert reserved.take([left, theirs]) == Taken(held=(left,), found=(theirs,))
    reserved.give_back_all()
    assert os.listdir(tmp_path) == [".agents"]


def test_a_child_that_was_forked_meanwhile_does_not_keep_a_name(tmp_path: Path) -> None:
    name = bytes(tmp_path / ".git")
    one, other = ReservedNames(), ReservedNames()
    one.take([name])
    other.take([name])
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:  # it has the descriptors, as children of the launcher do
        os.close(writer)
        os.read(reader, 1)
        os._exit(0)
    one.give_back_all()
    other.give_back_all()
    os.close(writer)
    os.close(reader)
    os.waitpid(child, 0)
    assert not os.path.exists(name)
