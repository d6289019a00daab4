import os
import shutil
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from app_server.engine.support.engine_errors import GitError
from app_server.engine.workspace.git.ghost import (
    LEADS_ELSEWHERE,
    Snapshots,
    SnapshotUnavailable,
    TakenSnapshot,
)
from app_server.engine.workspace.git.run_git import Git, GitCommand, GitProgram, run_git
from app_server.engine.workspace.git.snapshot import diff_to_remote
from app_server.engine.workspace.git.worktree_files import Blobs, WorktreeFile
from tests.support.sandpit import Sandpit
from tests.support.waiting import until

MOMENT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def tree(pit: Sandpit, commit: str) -> dict[str, str]:
    """Return the modes of a commit's files, by name."""
    entries = (line.split("\t") for line in pit.run("ls-tree", "-r", "-z", commit).split("\0") if line)
    return {path: head.split()[0] for head, path in entries}


# --- taking
async def test_a_snapshot_holds_the_files_as_they_lie_there_and_changes_nothing(pit: Sandpit) -> None:
    parent = pit.commit(a="1\n", gone="x\n", sub__b="2\n", **{".gitignore": "*.log\nbuild/\n"})
    pit.write("a", "changed\n")
    (pit.root / "gone").unlink()
    pit.write("new/file")
    pit.write("run.sh").chmod(0o755)
    (pit.root / "link").symlink_to("a")
    pit.write("x.log")
    pit.write("build/out")
    pit.write("only/y.log")
    odd = 'quo"te\nnl\\x é'
    pit.write(odd)
    os.mkfifo(pit.root / "pipe")
    before = pit.state()

    taken = await pit.ghost()

    assert pit.state() == before
    assert taken.parent == parent
    assert tree(pit, taken.id) == {
        ".gitignore": "100644",
        "a": "100644",
        "sub/b": "100644",
        "new/file": "100644",
        "run.sh": "100755",
        "link": "120000",
        odd: "100644",
    }
    assert pit.run("show", f"{taken.id}:a") == "changed"
    assert pit.run("show", f"{taken.id}:link") == "a"
    assert set(taken.preexisting_untracked_files) == {
        "new/file",
        "run.sh",
        "link",
        odd,
        "x.log",
        "only/y.log",
    }
    assert taken.preexisting_untracked_dirs == ("build",)
    assert pit.run("show", "-s", "--format=%an %ct %P", taken.id) == f"Codex Snapshot 1767323045 {parent}"
    assert list((pit.base / "home" / "tmp").iterdir()) == []


async def test_a_snapshot_of_a_folder_looks_only_below_it(pit: Sandpit) -> None:
    pit.commit(a="1\n", sub__b="2\n")
    pit.write("a", "changed\n")
    pit.write("sub/b", "changed\n")
    pit.write("sub/new")
    pit.write("new")
    taken = await pit.ghost("sub")
    assert set(tree(pit, taken.id)) == {"a", "sub/b", "sub/new"}
    assert pit.run("show", f"{taken.id}:a") == "1"
    assert pit.run("show", f"{taken.id}:sub/b") == "changed"
    assert taken.preexisting_untracked_files == ("sub/new",)


async def test_a_change_in_the_moment_of_the_commit_is_seen(pit: Sandpit) -> None:
    pit.commit(a="one\n")
    status = (pit.root / "a").stat()
    pit.write("a", "two\n")
    os.utime(pit.root / "a", ns=(status.st_atime_ns, status.st_mtime_ns))
    os.utime(pit.root / ".git" / "index", ns=(status.st_atime_ns, status.st_mtime_ns))
    taken = await pit.ghost()
    assert pit.run("show", f"{taken.id}:a") == "two"


async def test_a_repository_without_a_commit_can_be_snapshot(pit: Sandpit) -> None:
    pit.write("f")
    taken = await pit.ghost()
    assert (taken.parent, set(tree(pit, taken.id))) == (None, {"f"})


async def test_an_empty_repository_can_be_snapshot(pit: Sandpit) -> None:
    assert tree(pit, (await pit.ghost()).id) == {}


async def test_a_folder_that_became_a_link_is_not_read_through(pit: Sandpit) -> None:
    pit.commit(sub__secret="harmless\n")
    (pit.base / "outside").mkdir()
    (pit.base / "outside" / "secret").write_text("hush\n")
    (pit.root / "sub" / "secret").unlink()
    (pit.root / "sub").rmdir()
    (pit.root / "sub").symlink_to(pit.base / "outside")
    taken = await pit.ghost()
    assert tree(pit, taken.id) == {"sub": "120000"}


async def test_a_linked_worktree_can_be_snapshot(pit: Sandpit) -> None:
    pit.commit(a="1\n")
    pit.run("worktree", "add", "-q", "-b", "side", str(pit.base / "linked"))
    (pit.base / "linked" / "a").write_text("2\n")
    taken = await pit.ghost("../linked")
    assert pit.run("show", f"{taken.id}:a") == "2"


async def test_the_client_is_informed_outside_of_a_repository(unversioned: Path) -> None:
    taken = await Snapshots(Git(unversioned)).take(unversioned, MOMENT)
    assert taken == SnapshotUnavailable("Snapshots disabled: current directory is not a Git repository.")


async def test_a_git_that_fails_is_no_failure_of_the_turn(pit: Sandpit) -> None:
    script = pit.base / "failing"
    script.write_text("#!/bin/sh\necho fatal: secret >&2; exit 128\n")
    script.chmod(0o755)
    taken = await Snapshots(Git(pit.base, GitProgram(str(script)))).take(pit.root, MOMENT)
    assert isinstance(taken, SnapshotUnavailable)
    assert taken.message.startswith("Snapshots disabled after ghost snapshot error: git ")
    assert "secret" not in taken.message


@pytest.mark.parametrize("kind", ["objects", "pointer", "link", "common"])
async def test_a_repository_that_leads_elsewhere_is_not_written_to(pit: Sandpit, kind: str) -> None:
    """A command can create any of these in a folder of its own."""
    pit.commit(a="1\n")
    planted = pit.base / "planted"
    planted.mkdir()
    pit.run("init", "-q", cwd=planted)
    inside, victim = planted / ".git", pit.root / ".git"
    match kind:
        case "objects":
            shutil.rmtree(inside / "objects")
            (inside / "objects").symlink_to(victim / "objects")
        case "common":
            (inside / "commondir").write_text(str(victim))
        case _:
            shutil.rmtree(inside)
            inside.symlink_to(victim) if kind == "link" else inside.write_text(f"gitdir: {victim}\n")
    (planted / "new").write_text("new\n")
    before = sorted((victim / "objects").rglob("*"))
    taken = await Snapshots(pit.git).take(planted, MOMENT)
    assert taken == SnapshotUnavailable(LEADS_ELSEWHERE)
    assert sorted((victim / "objects").rglob("*")) == before


async def test_a_submodule_can_be_snapshot(pit: Sandpit) -> None:
    pit.commit(a="1\n")
    pit.run("submodule", "-q", "add", str(pit.root), "sub")
    taken = await pit.ghost("sub")
    assert pit.run("ls-tree", "--name-only", taken.id, cwd=pit.root / "sub") == "a"


async def test_credentials_are_in_no_snapshot(pit: Sandpit) -> None:
    """A link to the credentials replaces a file, in one case after the file was checked."""
    (pit.base / "home").mkdir()
    (pit.base / "home" / "auth.json").write_text("sk-secret\n")
    pit.commit(a="1\n", b="1\n")
    os.unlink(pit.root / "a")
    os.link(pit.base / "home" / "auth.json", pit.root / "a")
    os.link(pit.base / "home" / "auth.json", pit.root / "untracked")
    taken = await pit.ghost()
    assert set(tree(pit, taken.id)) == {"b"}
    assert "sk-secret" not in pit.run("cat-file", "--batch-all-objects", "--batch")
    assert set(taken.preexisting_untracked_files) == {"a", "untracked"}


async def test_no_file_is_read_through_a_link_that_is_exchanged_meanwhile(pit: Sandpit) -> None:
    names = [f"f{number}" for number in range(50)]
    secret = pit.base / "secret"
    secret.write_text("hush\n")
    pit.commit(a="1\n")
    for name in names:
        pit.write(name, "plain\n")
    over = threading.Event()

    def swap() -> None:
        link = pit.base / "link"
        while not over.is_set():
            for name in names:
                link.symlink_to(secret)
                os.replace(link, pit.root / name)
                (pit.base / "plain").write_text("plain\n")
                os.replace(pit.base / "plain", pit.root / name)

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        for _ in range(10):
            await pit.taken()
    finally:
        over.set()
        swapping.join()
    assert "hush" not in pit.run("cat-file", "--batch-all-objects", "--batch")


async def test_what_did_not_change_since_is_not_read_again(
    pit: Sandpit, monkeypatch: pytest.MonkeyPatch
) -> None:
    pit.commit(a="1\n")
    old = [pit.write(f"new{number}") for number in range(3)]
    read: list[bytes] = []
    keep = Blobs.keep

    def noted(blobs: Blobs, file: WorktreeFile, *arguments: Any) -> tuple[WorktreeFile, str]:
        read.append(file.path)
        return keep(blobs, file, *arguments)

    monkeypatch.setattr(Blobs, "keep", noted)
    snapshots = Snapshots(pit.git)
    for place in old:  # a file that changed in the moment of a snapshot is read again
        while place.stat().st_ctime_ns >= pit.write("../clock").stat().st_ctime_ns:
            pass
    assert isinstance(taken := await snapshots.take(pit.root, MOMENT), TakenSnapshot)
    assert sorted(read) == [b"new0", b"new1", b"new2"]
    read.clear()
    pit.write("a", "2\n")
    assert await snapshots.finish(taken, MOMENT) is not None
    assert read == [b"a"]


# --- the diff to the remote
def published(pit: Sandpit) -> None:
    remote = str(pit.base / "remote.git")
    pit.run("clone", "-q", "--bare", str(pit.root), remote, cwd=pit.base)
    pit.run("remote", "add", "origin", remote)
    pit.run("fetch", "-q", "origin")


async def test_the_diff_leads_from_what_the_remote_has_to_the_files_as_they_are(pit: Sandpit) -> None:
    sha = pit.commit(**{"a.txt": "one\n"})
    published(pit)
    pit.commit(**{"b.txt": "committed\n"})
    pit.write("a.txt", "one\ntwo\n")
    pit.write("new.txt", "new\n")
    before, blob = pit.state(), pit.run("hash-object", "b.txt")[:7]
    objects = pit.run("count-objects", "-v")
    found = await diff_to_remote(pit.git, pit.root)
    assert found is not None
    assert found.sha == sha
    assert found.diff == (
        "diff --git a/a.txt b/a.txt\nindex 5626abf..814f4a4 100644\n--- a/a.txt\n+++ b/a.txt\n"
        "@@ -1 +1,2 @@\n one\n+two\n"
        f"diff --git a/b.txt b/b.txt\nnew file mode 100644\nindex 0000000..{blob}\n--- /dev/null\n"
        "+++ b/b.txt\n"
        "@@ -0,0 +1 @@\n+committed\n"
        "diff --git a/new.txt b/new.txt\nnew file mode 100644\nindex 0000000..3e75765\n--- /dev/null\n"
        "+++ b/new.txt\n@@ -0,0 +1 @@\n+new\n"
    )
    assert (pit.state(), pit.run("count-objects", "-v")) == (before, objects), "nothing was written"


async def test_without_changes_the_diff_is_empty(pit: Sandpit) -> None:
    sha = pit.commit(a="1\n")
    published(pit)
    found = await diff_to_remote(pit.git, pit.root)
    assert found is not None
    assert (found.sha, found.diff) == (sha, "")


async def test_the_closest_commit_is_that_of_the_closest_branch(pit: Sandpit) -> None:
    pit.commit(a="1\n")
    pit.run("checkout", "-q", "-b", "feature")
    closest = pit.commit(a="2\n")
    published(pit)
    pit.run("checkout", "-q", "-b", "local")
    pit.commit(a="3\n")
    found = await diff_to_remote(pit.git, pit.root)
    assert found is not None
    assert found.sha == closest


async def test_without_a_remote_there_is_no_diff(pit: Sandpit, tmp_path: Path) -> None:
    pit.commit(a="1\n")
    assert await diff_to_remote(pit.git, pit.root) is None
    assert await diff_to_remote(pit.git, tmp_path) is None


async def test_a_remote_with_another_history_has_nothing_in_common(pit: Sandpit) -> None:
    pit.commit(a="1\n")
    published(pit)
    pit.run("checkout", "-q", "--orphan", "other")
    pit.commit(a="2\n")
    assert await diff_to_remote(pit.git, pit.root) is None


# --- running git
def is_alive(process: int) -> bool:
    status = Path(f"/proc/{process}/status")
    return status.exists() and "Z (zombie)" not in status.read_text()


async def test_git_that_does_not_end_is_ended(tmp_path: Path) -> None:
    script = tmp_path / "git"
    script.write_text("#!/bin/sh\nsleep 600 & echo $! > new; mv new child; wait\n")
    script.chmod(0o755)
    command = GitCommand((str(script),), {"PATH": "/usr/bin:/bin"}, tmp_path)
    timeout = 0.3
    while not (tmp_path / "child").exists():  # on a busy machine it may not have started yet
        with pytest.raises(GitError, match="did not end"):
            await run_git(command, timeout=timeout)
        timeout *= 2
    # A killed process may take a moment to end.
    await until(lambda: not is_alive(int((tmp_path / "child").read_text())))


async def test_a_missing_git_is_reported(tmp_path: Path) -> None:
    with pytest.raises(GitError, match="There is no git in /bin; install it there"):
        await run_git(GitCommand(("/no/such/git",), {"PATH": "/bin"}, tmp_path))
    with pytest.raises(GitError, match="its folder does not exist"):
        await run_git(GitCommand(("git",), {"PATH": "/usr/bin:/bin"}, tmp_path / "missing"))
