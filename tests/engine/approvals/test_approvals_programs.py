"""The file that a program name refers to, and the folders that git may read without a question."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from app_server.engine.approvals.decide import CommandRequest, must_ask
from app_server.engine.approvals.program_trust import (
    MOST_FOLDERS,
    ProgramSearch,
    exposed_folders,
    git_is_plain,
)
from app_server_protocol.policy import AskForApproval, DangerFullAccess, ReadOnly


@pytest.fixture
def top(unversioned: Path) -> Path:
    """Return a folder with the workspace `ws` and `tools`, a folder of the user's. No command may write above it."""
    for name in ("ws/bin", "tools", "home"):
        (unversioned / name).mkdir(parents=True)
    program(unversioned / "tools/ls")
    return unversioned


def program(path: Path, mode: int = 0o755) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(mode)
    return path


def search(top: Path, *folders: str | Path, home: Path | None = None, **more: str) -> ProgramSearch:
    environment = {"PATH": ":".join(map(str, folders)), "HOME": str(home or top / "home"), **more}
    return ProgramSearch(environment, exposed_folders(str(top / "ws"), ()))


def test_the_first_match_on_the_path_is_the_program(top: Path) -> None:
    assert search(top, top / "tools").trusts("ls")
    assert search(top, top / "ws/bin", top / "tools").trusts("ls"), (
        "an environment of the workspace without ls"
    )
    program(top / "ws/bin/ls")
    assert search(top, top / "tools", top / "ws/bin").trusts("ls")
    assert not search(top, top / "ws/bin", top / "tools").trusts("ls")


def test_a_name_that_is_found_nowhere_runs_nothing(top: Path) -> None:
    assert search(top, top / "tools", top / "none").trusts("rg")


def test_what_may_become_a_program_any_moment_is_no_other_one(top: Path) -> None:
    program(top / "ws/bin/ls", 0o644)
    assert not search(top, top / "ws/bin", top / "tools").trusts("ls")


def test_what_cannot_be_executed_elsewhere_is_passed_over(top: Path) -> None:
    program(top / "other/ls", 0o644)
    (top / "folder/ls").mkdir(parents=True)
    assert search(top, top / "folder", top / "other", top / "tools").trusts("ls")
    program(top / "ws/bin/ls")
    assert not search(top, top / "other", top / "ws/bin").trusts("ls")


@pytest.mark.parametrize("folder", ["", ".", "bin", "./node_modules/.bin", "~/bin", "../tools"])
def test_a_path_that_depends_on_the_folder_finds_nothing_that_is_trusted(top: Path, folder: str) -> None:
    assert not search(top, folder, top / "tools").trusts("ls")
    assert search(top, top / "tools", folder).trusts("ls"), "it is not looked at"
    assert not search(top, top / "tools", folder).trusts("rg")


def test_without_a_path_nothing_is_trusted() -> None:
    assert not ProgramSearch({"HOME": "/nowhere"}, ()).trusts("ls")
    assert not ProgramSearch({"HOME": "/nowhere", "PATH": "/x:" * 1000 + "/usr/bin"}, ()).trusts("ls")


@pytest.mark.parametrize("name", ["./ls", "bin/ls", "../tools/ls"])
def test_a_relative_path_is_never_trusted(top: Path, name: str) -> None:
    assert not search(top, top / "tools").trusts(name)


def test_links_are_followed_both_ways(top: Path) -> None:
    program(top / "ws/evil")
    (top / "tools/cat").symlink_to(top / "ws/evil")
    assert not search(top, top / "tools").trusts("cat"), "a name outside that leads inside"
    (top / "ws/bin/ls").symlink_to(top / "tools/ls")
    assert not search(top, top / "ws/bin").trusts("ls"), "a name inside can be made to lead elsewhere"
    (top / "alias").symlink_to(top / "ws/bin")
    program(top / "ws/bin/rg")
    assert not search(top, top / "alias").trusts("rg")
    (top / "here").symlink_to(top / "ws")
    exposed = exposed_folders(str(top / "here"), ())
    assert not ProgramSearch({"PATH": str(top / "ws/bin")}, exposed).trusts("rg")


def test_what_everybody_may_write_is_not_trusted(top: Path) -> None:
    open_to_all = program(top / "shared/bin/ls")
    assert search(top, top / "shared/bin").trusts("ls")
    (top / "shared").chmod(0o1777)
    assert search(top, top / "shared/bin").trusts("ls")
    (top / "shared").chmod(0o777)
    assert not search(top, top / "shared/bin").trusts("ls")
    (top / "shared").chmod(0o755)
    open_to_all.chmod(0o777)
    assert not search(top, top / "shared/bin").trusts("ls")


def test_a_program_by_its_path_is_looked_at_too(top: Path) -> None:
    assert search(top).trusts("/usr/bin/env")
    inside = ProgramSearch({"PATH": ""}, exposed_folders("/usr", ()))
    assert not inside.trusts("/usr/bin/env")


@pytest.mark.parametrize("name", [".bash_profile", ".profile", ".zshenv"])
def test_a_shell_that_reads_what_the_workspace_holds_is_not_trusted(top: Path, name: str) -> None:
    for shell in ("bash", "sh", "zsh"):
        program(top / "tools" / shell)
        assert search(top, top / "tools", home=top / "ws").trusts(shell), "there is nothing to read"
    (top / "ws" / name).write_text("touch pwned\n")
    assert not search(top, top / "tools", home=top / "ws").trusts("bash")
    assert search(top, top / "tools", home=top / "ws").trusts("ls")
    assert search(top, top / "tools").trusts("bash")
    assert not search(top, top / "tools", ZDOTDIR=str(top / "ws")).trusts("zsh")
    (top / "home" / name).symlink_to(top / "ws" / name)
    assert not search(top, top / "tools").trusts("bash")


def test_repositories_around_the_working_directory_are_exposed_and_the_whole_disk_is_not(top: Path) -> None:
    inner = top / "ws/a/b"
    inner.mkdir(parents=True)
    (top / "ws/.git").mkdir()
    (top / "ws/a/.git").write_text("gitdir: elsewhere\n")
    assert exposed_folders(str(inner), ["/var/cache", "/"]) == tuple(
        sorted(["/var/cache", *(os.path.realpath(place) for place in (inner, top / "ws/a", top / "ws"))])
    )
    assert exposed_folders("/", ()) == ()


def test_a_very_long_path_is_not_searched(top: Path) -> None:
    folders = [str(top / "none")] * (MOST_FOLDERS - 1)
    assert search(top, *folders, top / "tools").trusts("ls")
    assert not search(top, *folders, top / "none", top / "tools").trusts("ls")


def test_a_shell_without_a_home_is_not_trusted(top: Path) -> None:
    program(top / "tools/bash")
    exposed = exposed_folders(str(top / "ws"), ())
    assert not ProgramSearch({"PATH": str(top / "tools")}, exposed).trusts("bash")
    assert not ProgramSearch({"PATH": str(top / "tools"), "HOME": "home"}, exposed).trusts("bash")


def test_every_place_of_a_linked_program_is_looked_at(top: Path) -> None:
    program(top / "shared/ls")
    (top / "linked").symlink_to(top / "shared")
    assert search(top, top / "linked").trusts("ls")
    (top / "shared").chmod(0o777)
    assert not search(top, top / "linked").trusts("ls")
    (top / "shared").chmod(0o755)
    (top / "open").mkdir()
    (top / "open/link").symlink_to(top / "shared")
    assert search(top, top / "open/link").trusts("ls")
    (top / "open").chmod(0o777)
    assert not search(top, top / "open/link").trusts("ls")


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
    request = CommandRequest(("git", "status"))

    def anything(program: str) -> bool:
        return True

    def look() -> bool:
        return git_is_plain(str(repository))

    assert not must_ask(request, UNTRUSTED, ReadOnly(), trusts=anything, git_is_plain=look)
    assert must_ask(request, UNTRUSTED, DangerFullAccess(), trusts=anything, git_is_plain=look)
    assert must_ask(request, UNTRUSTED, ReadOnly(), trusts=anything)
    names_a_monitor(repository)
    assert must_ask(request, UNTRUSTED, ReadOnly(), trusts=anything, git_is_plain=look)
