"""Links that cannot be read: whoever resolves a path gets an answer, and no repository leads out by one."""

import errno
import os
from pathlib import Path

import pytest

from app_server.core.config.trust import main_worktree, trust_of
from app_server.core.context.project_docs import find_instructions
from app_server.core.git.repository import find_repository, project_folders
from app_server.core.real_path import followed_path, real_path
from app_server.core.skills.discover import discover, project_roots

TOO_LONG = "x" * 300
"""No file system here has such a name."""


@pytest.fixture
def secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A link that this user may not read, as `/proc/PID/cwd` of another user's process is.

    A link in a circle lies beside it.
    """
    (tmp_path / "circle").symlink_to("circle")
    link = tmp_path / "secret"
    link.symlink_to("/etc")
    read = os.readlink

    def readlink(path: str, *, dir_fd: int | None = None) -> str:
        if os.fsdecode(path) == (link.name if dir_fd is not None else str(link)):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return read(path, dir_fd=dir_fd)

    monkeypatch.setattr(os, "readlink", readlink)
    return link


def test_a_link_that_cannot_be_read_is_kept(tmp_path: Path, secret: Path) -> None:
    for path in (secret, secret / "below", tmp_path / "circle"):
        with pytest.raises(OSError, match=r"secret|circle"):
            followed_path(path)
    assert real_path(secret) == str(secret)
    assert real_path(tmp_path / "circle/x") == str(tmp_path / "circle/x")
    (tmp_path / "way").symlink_to("secret/below")
    assert real_path(tmp_path / "way") == str(tmp_path / "way")
    (tmp_path / "folder").symlink_to(".")
    assert real_path(tmp_path / "folder/secret/x/y") == f"{secret}/x/y"


def test_what_can_be_read_is_resolved(tmp_path: Path) -> None:
    (tmp_path / "to").mkdir()
    (tmp_path / "way").symlink_to("to")
    assert (
        real_path(tmp_path / "way/none") == followed_path(tmp_path / "way/none") == str(tmp_path / "to/none")
    )
    assert real_path(tmp_path / TOO_LONG) == str(tmp_path / TOO_LONG)


def test_a_repository_with_links_that_cannot_be_read_is_opened(tmp_path: Path, secret: Path) -> None:
    repository = tmp_path / "repository"
    (repository / ".git").mkdir(parents=True)
    (repository / "AGENTS.md").symlink_to(secret / "x")
    (repository / ".agents").symlink_to(secret)
    assert find_instructions(tmp_path / "home", repository, 1000) is None
    assert discover(project_roots(repository)) == ([], [])
    (repository / ".git").rmdir()
    (repository / ".git").write_text(f"gitdir: {secret}/x")
    assert main_worktree(repository) == str(repository)
    assert trust_of(secret, {str(secret): "trusted"})


def test_folders_whose_names_are_too_long_have_no_repository(tmp_path: Path) -> None:
    cwd = tmp_path / TOO_LONG
    assert project_folders(cwd, "skills", lambda refusal: None) == [cwd]
    assert main_worktree(cwd) is None
    (tmp_path / ".git").write_text(f"gitdir: {TOO_LONG}")
    assert find_repository(tmp_path) is None
