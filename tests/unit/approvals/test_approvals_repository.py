"""Which folders git may read without anybody being asked."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from app_server.core.approvals.decide import CommandRequest, Verdict, decide
from app_server.core.approvals.planted import git_is_plain
from protocol.policy import AskForApproval, DangerFullAccess, ReadOnly

UNTRUSTED = AskForApproval.UNTRUSTED


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    for sample in (tmp_path / ".git" / "hooks").glob("*"):
        sample.unlink()
    return tmp_path


def test_a_fresh_repository_is_plain_from_its_root_and_from_below(repository: Path) -> None:
    inner = repository / "a" / "b"
    inner.mkdir(parents=True)
    assert git_is_plain(str(repository))
    assert git_is_plain(str(inner))


def names_a_monitor(root: Path) -> None:
    subprocess.run(["git", "-C", str(root), "config", "core.fsmonitor", "./evil"], check=True)


def is_a_bare_repository_too(root: Path) -> None:
    (root / "HEAD").write_text("ref: refs/heads/main\n")


def keeps_its_git_elsewhere(root: Path) -> None:
    (root / ".git").rename(root / "other")
    (root / ".git").write_text("gitdir: other\n")


def has_a_link_for_git(root: Path) -> None:
    (root / ".git").rename(root / "other")
    (root / ".git").symlink_to("other")


def has_a_pipe_for_an_index(root: Path) -> None:
    os.mkfifo(root / ".git" / "index")


def has_a_link_for_a_configuration(root: Path) -> None:
    config = root / ".git" / "config"
    config.rename(root / "config")
    config.symlink_to("../config")


@pytest.mark.parametrize(
    "change",
    [
        names_a_monitor,
        is_a_bare_repository_too,
        keeps_its_git_elsewhere,
        has_a_link_for_git,
        has_a_pipe_for_an_index,
        has_a_link_for_a_configuration,
    ],
)
def test_what_cannot_be_judged_is_not_plain(repository: Path, change: Callable[[Path], None]) -> None:
    change(repository)
    assert not git_is_plain(str(repository))


def test_a_bare_repository_between_the_folder_and_the_root_is_what_git_would_find(repository: Path) -> None:
    inner = repository / "a" / "b"
    inner.mkdir(parents=True)
    (repository / "a" / "HEAD").write_text("ref: refs/heads/main\n")
    assert not git_is_plain(str(inner))


def test_a_folder_outside_of_repositories_is_not_a_plain_repository(unversioned: Path) -> None:
    assert not git_is_plain(str(unversioned / "nowhere"))


def test_git_runs_unasked_only_in_a_sandbox_and_a_plain_repository(repository: Path) -> None:
    request = CommandRequest(("git", "status"), str(repository))

    def anything(program: str) -> bool:
        return True

    def look() -> bool:
        return git_is_plain(request.cwd)

    assert decide(request, UNTRUSTED, ReadOnly(), trusts=anything, git_is_plain=look) is Verdict.RUN
    assert decide(request, UNTRUSTED, DangerFullAccess(), trusts=anything, git_is_plain=look) is Verdict.ASK
    assert decide(request, UNTRUSTED, ReadOnly(), trusts=anything) is Verdict.ASK
    names_a_monitor(repository)
    assert decide(request, UNTRUSTED, ReadOnly(), trusts=anything, git_is_plain=look) is Verdict.ASK
