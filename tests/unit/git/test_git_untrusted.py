"""Nothing that a repository names is executed, and nothing that it points at is taken for it."""

from pathlib import Path

import pytest

from app_server.core.git.ghost import Snapshots, SnapshotUnavailable
from app_server.core.git.repository import read_git_info
from app_server.core.git.upstream import diff_to_remote
from tests.unit.git.conftest import Sandpit

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
    """A repository that has a program for everything, and a remote that only a program reaches."""
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
    taken = await hostile.taken()
    hostile.write("a", "again\n")
    await hostile.undo(await hostile.finished(taken))
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
    taken = (await pit.taken()).commit
    assert taken.preexisting_untracked_files == ()
    assert "secret" not in pit.run("--work-tree", ".", "ls-tree", "-r", taken.id)


async def test_a_planted_bare_repository_is_no_repository(unversioned: Path, pit: Sandpit) -> None:
    planted = unversioned / "planted"
    pit.run("init", "-q", "--bare", str(planted), cwd=unversioned)
    assert await diff_to_remote(pit.git, planted) is None
    assert isinstance(await Snapshots(pit.git).take(planted, pit.moment), SnapshotUnavailable)
