"""Names that are held while commands run: made, shared, given back, and never taken from somebody else."""

import os
import resource
from pathlib import Path

import pytest

from app_server.core.launcher.placeholder_dirs import Acquired, PlaceholderDirs
from app_server.core.sandbox.confine.placeholder_mark import MARK_NS


@pytest.fixture
def name(tmp_path: Path) -> bytes:
    return os.fsencode(tmp_path / ".git")


def test_a_name_is_held_by_a_marked_directory_until_the_last_has_given_it_back(name: bytes) -> None:
    names = PlaceholderDirs()
    first, second = names.acquire([name]), names.acquire([name])
    assert first.held == second.held == (name,)
    assert os.stat(name).st_mtime_ns == MARK_NS
    names.release(first.held)
    assert os.path.isdir(name)
    names.release(second.held)
    assert not os.path.lexists(name)


def test_a_kept_directory_serves_the_next_command_and_is_removed_unless_it_is_needed(name: bytes) -> None:
    names = PlaceholderDirs()
    names.keep(names.acquire([name]).held)
    made = os.stat(name).st_ino
    again = names.acquire([name])
    assert (again.held, os.stat(name).st_ino) == ((name,), made)
    names.remove_unused()
    assert os.path.isdir(name)
    names.keep(again.held)
    names.remove_unused()
    assert not os.path.lexists(name)


def test_a_kept_directory_that_somebody_removed_or_replaced_is_not_taken_for_it(name: bytes) -> None:
    names = PlaceholderDirs()
    names.keep(names.acquire([name]).held)
    os.rmdir(name)
    again = names.acquire([name])
    assert again.held == (name,)
    assert os.stat(name).st_mtime_ns == MARK_NS
    names.keep(again.held)
    os.rmdir(name)
    os.mkdir(name)
    assert names.acquire([name]) == Acquired(held=(), found=(name,))
    names.remove_unused()
    assert os.path.isdir(name)


def test_what_is_there_already_is_somebody_elses(name: bytes) -> None:
    os.mkdir(name)
    names = PlaceholderDirs()
    taken = names.acquire([name])
    assert (taken.held, taken.found) == ((), (name,))
    names.release_all()
    assert os.path.isdir(name)


def test_who_found_a_name_takes_it_from_nobody_who_holds_it(name: bytes) -> None:
    """One command finds the directory of the user, who then removes it; the next one holds the name."""
    os.mkdir(name)
    names = PlaceholderDirs()
    found = names.acquire([name])
    os.rmdir(name)
    held = names.acquire([name])
    assert held.held == (name,)
    names.release(found.held)
    assert os.path.isdir(name)
    names.release(held.held)
    assert not os.path.lexists(name)


def test_two_servers_share_a_directory(name: bytes) -> None:
    one, other = PlaceholderDirs(), PlaceholderDirs()
    taken, theirs = one.acquire([name]), other.acquire([name])
    assert taken.held == theirs.held == (name,)
    one.release(taken.held)
    assert os.path.isdir(name)
    again = one.acquire([name])
    assert again.held == (name,)
    other.release_all()
    assert os.path.isdir(name)
    one.release(again.held)
    assert not os.path.lexists(name)


def test_what_somebody_puts_into_it_stays(name: bytes) -> None:
    names = PlaceholderDirs()
    taken = names.acquire([name])
    Path(os.fsdecode(name), "HEAD").write_text("ref: refs/heads/main\n")
    names.release(taken.held)
    assert os.listdir(name) == [b"HEAD"]


def test_a_folder_that_is_missing_holds_nothing(tmp_path: Path) -> None:
    taken = PlaceholderDirs().acquire([os.fsencode(tmp_path / "missing" / ".git")])
    assert (taken.held, taken.found) == ((), ())


def test_a_link_is_not_followed(tmp_path: Path, name: bytes) -> None:
    target = tmp_path / "target"
    target.mkdir()
    os.utime(target, ns=(MARK_NS, MARK_NS))
    os.symlink(target, name)
    names = PlaceholderDirs()
    assert names.acquire([name]) == Acquired(held=(), found=(name,))
    target.rmdir()
    assert names.acquire([name]) == Acquired(held=(), found=(name,))
    names.release_all()
    assert os.path.islink(name)


def test_what_a_killed_launcher_left_is_removed_by_the_next_and_nothing_else(tmp_path: Path) -> None:
    left, theirs = bytes(tmp_path / ".codex"), bytes(tmp_path / ".agents")
    os.mkdir(left)
    os.utime(left, ns=(MARK_NS, MARK_NS))
    os.mkdir(theirs)
    reserved = PlaceholderDirs()
    assert reserved.acquire([left, theirs]) == Acquired(held=(left,), found=(theirs,))
    reserved.release_all()
    assert os.listdir(tmp_path) == [".agents"]


def test_a_child_that_was_forked_meanwhile_does_not_keep_a_name(tmp_path: Path) -> None:
    name = bytes(tmp_path / ".git")
    one, other = PlaceholderDirs(), PlaceholderDirs()
    one.acquire([name])
    other.acquire([name])
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:  # it has the descriptors, as children of the launcher do
        os.close(writer)
        os.read(reader, 1)
        os._exit(0)
    one.release_all()
    other.release_all()
    os.close(writer)
    os.close(reader)
    os.waitpid(child, 0)
    assert not os.path.exists(name)


def test_a_shortage_is_an_error_and_holds_nothing(tmp_path: Path, name: bytes) -> None:
    """Without the name a command that finds what was short could take it."""
    names = PlaceholderDirs()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    first = os.fsencode(tmp_path / "first")
    filling = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 50, hard))
        while True:
            filling.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        os.close(filling.pop())
        with pytest.raises(OSError, match="open files"):
            names.acquire((first, name))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for number in filling:
            os.close(number)
    assert names.holders == {}
    assert not os.path.lexists(first)
    assert not os.path.lexists(name)
    assert names.acquire((first, name)).held == (first, name)
    names.release_all()
