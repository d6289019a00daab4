"""Facts that git reports of a folder. No program that a repository names is executed, and no file that it points to is
read.
"""

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app_server.engine.workspace.git.ghost import Snapshots, SnapshotUnavailable
from app_server.engine.workspace.git.repository import (
    find_repository,
    parse_git_config,
    read_git_info,
    without_credentials,
)
from app_server.engine.workspace.git.snapshot import diff_to_remote
from app_server_protocol.rollout import GitInfo
from tests.support.sandpit import Sandpit

PROGRAMS = (
    "core.fsmonitor",
    "core.sshCommand",
    "core.pager",
    "core.editor",
    "core.askPass",
    "core.gitProxy",
    "core.alternateRefsCommand",
    "credential.helper",
    "diff.external",
    "diff.evil.command",
    "diff.evil.textconv",
    "filter.evil.clean",
    "filter.evil.smudge",
    "filter.evil.process",
    "merge.evil.driver",
    "gpg.program",
    "uploadpack.packObjectsHook",
    "trace2.eventTarget",
)
HOOKS = (
    "post-index-change",
    "reference-transaction",
    "post-checkout",
    "pre-commit",
    "post-commit",
    "fsmonitor",
)


@pytest.fixture
def hostile(pit: Sandpit) -> Sandpit:
    """Return a repository that names a program in every setting, and a remote that only a program reaches."""
    pit.commit(a="1\n", b="2\n")
    remote = pit.base / "remote.git"
    pit.run("clone", "-q", "--bare", str(pit.root), str(remote), cwd=pit.base)
    pit.run("remote", "add", "origin", str(remote))
    pit.run("fetch", "-q", "origin")
    witness = pit.base / "witness"
    evil = pit.base / "evil"
    evil.write_text(f'#!/bin/sh\necho "$0 $@" >> {witness}\ncat\n')
    evil.chmod(0o755)
    pit.write(".gitattributes", "* filter=evil diff=evil merge=evil\n")
    for hook in HOOKS:
        (pit.root / ".git" / "hooks").mkdir(exist_ok=True)
        (pit.root / ".git" / "hooks" / hook).symlink_to(evil)
    pit.write("a", "changed\n")
    pit.write("new", "new\n")
    for key in PROGRAMS:
        pit.run("config", key, str(evil))
    pit.run("config", "remote.origin.url", f"ext::{evil} %S")
    pit.run("config", "remote.origin.promisor", "true")
    pit.run("config", "protocol.ext.allow", "always")
    pit.run("config", "commit.gpgSign", "true")
    pit.run("config", "core.splitIndex", "true")
    pit.run("config", "core.untrackedCache", "true")
    witness.unlink(missing_ok=True)
    return pit


def executed(pit: Sandpit) -> str:
    witness = pit.base / "witness"
    return witness.read_text() if witness.exists() else ""


async def test_git_itself_executes_the_planted_programs(hostile: Sandpit) -> None:
    hostile.run("status")
    assert "evil" in executed(hostile) or "fsmonitor" in executed(hostile)


async def test_info_snapshot_undo_and_diff_execute_nothing(hostile: Sandpit) -> None:
    assert read_git_info(hostile.root) is not None
    turns = hostile.turns
    done = await turns.commands(lambda: hostile.write("a", "again\n"))
    await turns.restore(done, uncertain=True)
    assert (hostile.root / "a").read_text() == "changed\n"
    found = await diff_to_remote(hostile.git, hostile.root)
    assert found is not None
    assert "+changed" in found.diff
    assert executed(hostile) == ""


async def test_objects_that_are_missing_are_not_fetched(hostile: Sandpit) -> None:
    blob = hostile.run("rev-parse", "HEAD:b")
    (hostile.root / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    hostile.write("b", "changed, so that the old one is needed\n")
    await diff_to_remote(hostile.git, hostile.root)
    await hostile.taken()
    assert executed(hostile) == ""


async def test_a_working_tree_elsewhere_is_not_looked_at(pit: Sandpit) -> None:
    pit.commit(a="1\n")
    (pit.base / "elsewhere").mkdir()
    (pit.base / "elsewhere" / "secret").write_text("hush\n")
    pit.run("config", "core.worktree", str(pit.base / "elsewhere"))
    taken = await pit.ghost()
    assert taken.preexisting_untracked_files == ()
    assert "secret" not in pit.run("--work-tree", ".", "ls-tree", "-r", taken.id)


async def test_a_planted_bare_repository_is_no_repository(unversioned: Path, pit: Sandpit) -> None:
    planted = unversioned / "planted"
    pit.run("init", "-q", "--bare", str(planted), cwd=unversioned)
    assert await diff_to_remote(pit.git, planted) is None
    assert isinstance(await Snapshots(pit.git).take(planted, pit.moment), SnapshotUnavailable)


def test_outside_of_a_repository_there_is_nothing(unversioned: Path) -> None:
    assert read_git_info(unversioned) is None


def test_a_repository_without_a_commit_has_no_branch_yet(pit: Sandpit) -> None:
    assert read_git_info(pit.root) == GitInfo()


def test_commit_branch_and_remote_are_known_from_any_folder_below(pit: Sandpit) -> None:
    commit = pit.commit(sub__a="x")
    pit.run("remote", "add", "origin", "https://user:token@example.com/x.git")
    found = read_git_info(pit.root / "sub")
    assert found == GitInfo(commit_hash=commit, branch="main", repository_url="https://example.com/x.git")


def test_a_detached_head_has_no_branch(pit: Sandpit) -> None:
    commit = pit.commit()
    pit.run("checkout", "-q", "--detach")
    assert read_git_info(pit.root) == GitInfo(commit_hash=commit)


def test_packed_references_are_read(pit: Sandpit) -> None:
    pit.run("checkout", "-q", "-b", "feat/one.two")
    commit = pit.commit()
    pit.run("pack-refs", "--all")
    assert read_git_info(pit.root) == GitInfo(commit_hash=commit, branch="feat/one.two")


def test_a_linked_worktree_has_a_head_of_its_own(pit: Sandpit) -> None:
    commit = pit.commit()
    pit.run("remote", "add", "origin", "git@example.com:x.git")
    pit.run("worktree", "add", "-q", "-b", "side", str(pit.base / "linked"))
    found = read_git_info(pit.base / "linked")
    assert found == GitInfo(commit_hash=commit, branch="side", repository_url="git@example.com:x.git")


def test_a_bare_repository_planted_in_a_tree_is_ignored(unversioned: Path, pit: Sandpit) -> None:
    planted = unversioned / "planted"
    pit.run("init", "-q", "--bare", str(planted), cwd=unversioned)
    assert find_repository(planted) is None
    assert find_repository(planted / "refs") is None


def test_short_forms_of_urls_are_spelled_out(pit: Sandpit) -> None:
    pit.commit()
    pit.run("remote", "add", "origin", "short:x")
    pit.run("config", "url.https://long.example/.insteadOf", "short:")
    found = read_git_info(pit.root)
    assert found is not None
    assert found.repository_url == "https://long.example/x"


@pytest.mark.parametrize(
    ("url", "displayable"),
    [
        ("https://user:token@example.com/a@b", "https://example.com/a@b"),
        ("https://token@example.com/x", "https://example.com/x"),
        ("http://a:b:c@example.com", "http://example.com"),
        ("ssh://git:pw@example.com/x", "ssh://git@example.com/x"),
        ("ssh://git@example.com/x", "ssh://git@example.com/x"),
        ("git@example.com:x.git", "git@example.com:x.git"),
        ("/srv/x@y", "/srv/x@y"),
        ("https://example.com/x", "https://example.com/x"),
        ("https://a@b@example.com/x", "https://example.com/x"),
    ],
)
def test_no_url_keeps_its_secrets(url: str, displayable: str) -> None:
    assert without_credentials(url) == displayable


@pytest.mark.parametrize(
    "head",
    [
        "ref: ../../../../etc/passwd\n",
        "ref: refs/heads/../../../x\n",
        "ref: refs/heads/a\0b\n",
        "ref: refs/heads/loop\n",
        "ref: refs/heads/" + "x" * 10_000,
        "no commit\n",
        "",
    ],
)
def test_a_head_that_git_would_not_write_leads_nowhere(pit: Sandpit, head: str) -> None:
    pit.commit()
    (pit.root / ".git" / "HEAD").write_text(head)
    (pit.root / ".git" / "refs" / "heads" / "loop").write_text("ref: refs/heads/loop\n")
    assert read_git_info(pit.root) == GitInfo()


def test_pipes_and_devices_are_not_read(pit: Sandpit) -> None:
    commit = pit.commit()
    config = pit.root / ".git" / "config"
    config.unlink()
    os.mkfifo(config)
    assert read_git_info(pit.root) == GitInfo(commit_hash=commit, branch="main")
    config.unlink()
    config.symlink_to("/dev/zero")
    assert read_git_info(pit.root) == GitInfo(commit_hash=commit, branch="main")


values = st.text(st.sampled_from('ab "\\;#=[]\t'), max_size=12)


@given(st.dictionaries(st.sampled_from(["a.one", "a.two", 'b.sub "x.three', "c.d.four"]), values, max_size=4))
@settings(max_examples=25, deadline=None)
def test_what_git_writes_into_a_configuration_is_read(written: dict[str, str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        pit = Sandpit(Path(folder))
        pit.root.mkdir()
        path = pit.root / "config"
        path.touch()
        for key, value in written.items():
            pit.run("config", "--file", str(path), key, value)
        assert parse_git_config(path.read_text()) == written


@given(st.text(max_size=60))
@settings(max_examples=150)
def test_no_text_breaks_the_parser(text: str) -> None:
    parse_git_config(text)
    parse_git_config(f"[a]\nx = {text}")
