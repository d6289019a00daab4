"""The git program that a server runs: the usual one, or one on the PATH that no command can have put there."""

import os
import shutil
from pathlib import Path

import pytest

from app_server.engine.support.engine_errors import GitError
from app_server.engine.workspace.git import find_git as module
from app_server.engine.workspace.git.find_git import find_git
from app_server.engine.workspace.git.repository import Repository
from app_server.engine.workspace.git.run_git import USUAL_FOLDERS, GitProgram


@pytest.fixture
def bin_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder of the PATH with git, on a machine that has none in the usual folders and whose /tmp is
    elsewhere.
    """
    folder = tmp_path / "conda" / "bin"
    folder.mkdir(parents=True)
    (folder / "git").write_text("#!/bin/sh\n")
    (folder / "git").chmod(0o755)
    monkeypatch.setattr(module, "USUAL_FOLDERS", "/nowhere")
    real, above = os.stat, {str(each) for each in tmp_path.parents}

    def stat(path: str | Path) -> os.stat_result:
        return real("/") if str(path) in above else real(path)

    monkeypatch.setattr(os, "stat", stat)
    monkeypatch.setattr(module, "TEMPORARY", ())
    return folder


def found(folder: Path, cwd: str = "/srv") -> str:
    return find_git({"PATH": f"relative:/missing:{folder}"}, cwd).path


def test_the_usual_program_comes_first() -> None:
    assert find_git({"PATH": "/opt"}, "/srv") == GitProgram()


def test_a_program_of_the_user_is_found_on_the_path(bin_folder: Path) -> None:
    assert found(bin_folder) == str(bin_folder / "git")
    (bin_folder / "git").chmod(0o644)
    assert found(bin_folder) == "git"


def test_a_link_is_followed_to_the_program(bin_folder: Path) -> None:
    (bin_folder.parent / "links").mkdir()
    (bin_folder.parent / "links" / "git").symlink_to(bin_folder / "git")
    assert found(bin_folder.parent / "links") == str(bin_folder / "git")


def test_no_program_counts_that_a_command_can_have_put_there(bin_folder: Path) -> None:
    assert found(bin_folder, str(bin_folder.parent)) == "git"
    bin_folder.parent.chmod(0o777)
    assert found(bin_folder) == "git"
    bin_folder.parent.chmod(0o755)
    (bin_folder.parent / ".git").mkdir()
    (bin_folder.parent / ".git" / "HEAD").touch()
    assert found(bin_folder) == "git"


def test_a_program_that_was_exchanged_is_not_run(bin_folder: Path, tmp_path: Path) -> None:
    program = find_git({"PATH": str(bin_folder)}, "/srv")
    repository = Repository(tmp_path, tmp_path / ".git", tmp_path / ".git")
    assert program.command(repository, ["status"]).argv[0] == str(bin_folder / "git")
    (bin_folder / "other").write_text("#!/bin/sh\nevil")
    (bin_folder / "other").replace(bin_folder / "git")
    with pytest.raises(GitError, match="was changed since the server started"):
        program.command(repository, ["status"])


def test_where_the_path_is_the_users_the_program_is_named_by_its_file(bin_folder: Path) -> None:
    assert GitProgram().file() == shutil.which("git", path=USUAL_FOLDERS)
    found = find_git({"PATH": str(bin_folder)}, "/srv")
    assert found.file() == str(bin_folder / "git")
    (bin_folder / "git").write_text("#!/bin/sh\nevil")
    with pytest.raises(GitError, match="was changed since the server started"):
        found.file()
