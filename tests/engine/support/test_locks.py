"""Locks of files: their holder, and what releases them."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from app_server.engine.support import filelock
from app_server.engine.support.filelock import LockHeld, hold, is_held


def test_a_lock_is_held_once_also_in_one_process(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    fd = hold(path)
    with pytest.raises(LockHeld):
        hold(path)
    os.close(fd)
    os.close(hold(path))


@pytest.mark.parametrize("mode", [0o600, 0o400])
def test_who_asks_whether_a_lock_is_held_neither_takes_it_nor_makes_its_file(
    mode: int, tmp_path: Path
) -> None:
    path = tmp_path / "lock"
    assert not is_held(str(path))
    assert not path.exists()
    fd = hold(str(path))
    path.chmod(mode)
    assert is_held(str(path))
    os.close(fd)
    assert not is_held(str(path))


def test_where_only_whole_files_are_locked_is_known_who_holds_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filelock, "SET_LOCK", None)
    path = str(tmp_path / "lock")
    fd = hold(path)
    assert is_held(path)
    os.close(fd)
    assert not is_held(path)


def test_a_child_that_inherits_the_descriptor_holds_the_lock_until_it_ends(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    fd = hold(path)
    child = subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"], pass_fds=[fd], stdin=subprocess.PIPE
    )
    os.close(fd)
    with pytest.raises(LockHeld):
        hold(path)
    child.kill()
    child.communicate()
    os.close(hold(path))


def test_a_wait_ends_when_the_lock_is_released(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    fd = hold(path)
    got: list[int] = []
    waiter = threading.Thread(target=lambda: got.append(hold(path, 60)))
    waiter.start()
    assert got == []
    os.close(fd)
    waiter.join(60)
    assert len(got) == 1
    os.close(got[0])


def test_a_lock_is_no_link_to_a_file_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        hold(str(tmp_path / "lock"))
    assert not (tmp_path / "elsewhere").exists()
