"""What doctor says of Python, the system, the sandbox, git and disks, by what was found there."""

import os
from pathlib import Path

import pytest

from app_server.core.diagnostics.home import check_credentials_file, check_home, check_locks, free_space
from app_server.core.diagnostics.machine import (
    FreeSpace,
    check_disk,
    check_git,
    check_python,
    check_sandbox,
    check_system,
)
from app_server.core.rollout.locks import history_lock
from app_server.core.sandbox.probe import SandboxLayer, SandboxState, layers
from protocol.checks import CheckStatus

OK, WARNING, BROKEN = CheckStatus.OK, CheckStatus.WARNING, CheckStatus.BROKEN
HELD = "done"
"""The output of a probe that could do nothing."""


def test_an_old_python_is_broken() -> None:
    assert check_python((3, 11, 0), "/bin/python").status is OK
    old = check_python((3, 10, 12), "/bin/python")
    assert (old.status, old.found) == (BROKEN, "3.10.12 at /bin/python")
    assert "3.11" in old.advice


@pytest.mark.parametrize(("platform", "status"), [("linux", OK), ("darwin", OK), ("win32", BROKEN)])
def test_other_systems_have_no_sandbox(platform: str, status: CheckStatus) -> None:
    assert check_system(platform, "1.0", "x86_64").status is status


def test_all_layers_hold() -> None:
    tried = layers((HELD, ""), (HELD, ""), 7)
    assert [(layer.name, layer.problem) for layer in tried] == [
        ("namespaces", None),
        ("Landlock (ABI 7)", None),
        ("seccomp", None),
    ]
    check = check_sandbox(SandboxState("full", landlock_abi=7), tried)
    assert check.status is OK
    assert "Landlock (ABI 7): holds" in check.found


def test_each_layer_is_judged_by_what_only_it_prevents() -> None:
    tried = layers(("see signal done", ""), ("write metadata see signal done", ""), 1)
    assert [layer.name for layer in tried if layer.problem is None] == ["seccomp"]
    tried = layers(("datagram done", ""), ("network datagram done", ""), 4)
    assert "datagram" in (tried[-1].problem or "")
    assert tried[1].problem is None


def test_a_kernel_without_namespaces_or_landlock() -> None:
    """Nothing ran, so nothing is known to hold."""
    tried = layers(("", "Operation not permitted"), None, 0)
    assert [layer.problem for layer in tried] == [
        "Operation not permitted",
        "the kernel has none",
        "a test command did not run in it",
    ]
    check = check_sandbox(SandboxState("none", "no layer"), tried)
    assert check.status is BROKEN
    assert "are refused: no layer" in check.found
    assert "Landlock" in check.advice


def test_a_weaker_sandbox_is_a_warning_with_its_gaps() -> None:
    state = SandboxState("degraded", "no namespaces", ("other processes are visible",), 5)
    check = check_sandbox(state, [SandboxLayer("namespaces", "refused")])
    assert check.status is WARNING
    assert "other processes are visible" in check.found
    assert "namespaces: does not hold (refused)" in check.found
    assert "user namespaces" in check.advice


def test_git_is_there_or_not() -> None:
    assert check_git("git version 2.39.5\n", "/bin").found == "git version 2.39.5"
    missing = check_git(None, "/bin")
    assert (missing.status, missing.found) == (WARNING, "There is no git in /bin")


@pytest.mark.parametrize(
    ("space", "status"),
    [
        (FreeSpace(1 << 40, None), OK),
        (FreeSpace(1 << 40, 10), WARNING),
        (FreeSpace(500 << 20, 10**6), WARNING),
        (FreeSpace(1 << 20, 10**6), BROKEN),
    ],
)
def test_little_space_is_told(space: FreeSpace, status: CheckStatus) -> None:
    check = check_disk("disk", "/somewhere", space)
    assert check.status is status
    assert bool(check.advice) is (status is not OK)


# --- the home
def test_a_home_that_can_be_written_is_left_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "sessions").mkdir()
    assert check_home(tmp_path).status is OK
    assert [each.name for each in tmp_path.iterdir()] == ["sessions"]


def test_a_home_that_does_not_exist_yet_is_not_created(tmp_path: Path) -> None:
    check = check_home(tmp_path / "a" / "home")
    assert (check.status, "creates" in check.found) == (OK, True)
    assert list(tmp_path.iterdir()) == []


def test_a_home_that_cannot_be_written_is_broken(tmp_path: Path) -> None:
    """A file at its place: permissions do not stop root, who may run this test."""
    (tmp_path / "home").write_text("")
    for home in (tmp_path / "home", tmp_path / "home" / "below"):
        check = check_home(home)
        assert (check.status, "CODEX_HOME" in check.advice) == (BROKEN, True)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "sessions").write_text("")
    check = check_home(tmp_path / "other")
    assert "sessions" in check.found


def test_credentials_that_others_can_read_are_told(tmp_path: Path) -> None:
    assert check_credentials_file(tmp_path).found == "no login is stored"
    stored = tmp_path / "auth.json"
    stored.write_text("{}")
    stored.chmod(0o600)
    assert check_credentials_file(tmp_path).status is OK
    stored.chmod(0o644)
    check = check_credentials_file(tmp_path)
    assert (check.status, check.advice) == (WARNING, f"chmod 600 {stored}")


def test_a_lock_that_nobody_gives_back_is_told(tmp_path: Path) -> None:
    assert check_locks(tmp_path, tmp_path).status is OK
    with history_lock(tmp_path, 1):
        check = check_locks(tmp_path, tmp_path, seconds=0)
    assert (check.status, "message history" in check.found) == (WARNING, True)
    assert check_locks(tmp_path / "missing", tmp_path).status is OK


def test_a_lock_file_of_git_is_told(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "index.lock").touch()
    check = check_locks(tmp_path / "home", tmp_path)
    assert (check.status, "index.lock" in check.found) == (WARNING, True)


def test_free_space_is_that_of_the_nearest_folder_that_exists(tmp_path: Path) -> None:
    assert free_space(tmp_path / "not" / "there").free_bytes > 0
    assert os.listdir(tmp_path) == []
