"""Temporary private folders in the home. Only the user can read them, and they are removed whatever happens to their
makers.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from app_server.engine.support.private_folders import own_folder, private_folder, temporary_folder

KILLED = """\
import os, sys
from app_server.engine.support.private_folders import private_folder
with private_folder(sys.argv[1], "draft") as folder:
    open(f"{folder}/file", "w").close()
    print(folder, flush=True)
    os.kill(os.getpid(), 9)
"""


def test_a_private_folder_is_in_the_home_and_the_users_alone(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with private_folder(home, "draft") as folder:
        assert os.path.dirname(folder) == str(home / "tmp")
        assert {os.stat(each).st_mode & 0o777 for each in (home, home / "tmp", folder)} == {0o700}
        Path(folder, "file").write_text("x")
    assert list((home / "tmp").iterdir()) == []


def test_what_a_killed_process_left_is_removed_with_the_next_of_its_kind(tmp_path: Path) -> None:
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path)], capture_output=True, text=True, check=False
    )
    left = Path(killed.stdout.strip())
    assert (left / "file").exists()
    with private_folder(tmp_path, "other"):
        assert left.exists()
    with private_folder(tmp_path, "draft") as folder:
        assert [each.name for each in (tmp_path / "tmp").iterdir()] == [os.path.basename(folder)]


def test_a_folder_in_use_is_left_alone(tmp_path: Path) -> None:
    with private_folder(tmp_path, "draft") as first, private_folder(tmp_path, "draft") as second:
        assert first != second
        assert os.path.isdir(first)


def test_a_folder_to_which_others_have_rights_is_put_right(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    (tmp_path / "tmp").chmod(0o777)
    assert os.stat(temporary_folder(tmp_path)).st_mode & 0o777 == 0o700


def test_a_link_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "tmp").symlink_to(elsewhere)
    with pytest.raises(PermissionError, match="is a link"), private_folder(tmp_path, "draft"):
        pass
    assert list(elsewhere.iterdir()) == []
    with pytest.raises(PermissionError, match="is a link"):
        own_folder(tmp_path, "tmp", "programs")
