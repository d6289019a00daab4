"""Writing: completely or not at all, also if it fails in the middle or is killed."""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from app_server.engine.support.helpers import writer_command
from app_server.engine.workspace.patch import atomic_writer
from app_server.engine.workspace.patch.atomic_writer import WriteError, Writer
from app_server.engine.workspace.patch.write_steps import OpenFolders, WriteStep, identity
from tests.engine.workspace.patch.worlds import apply, plan, tree, write

if TYPE_CHECKING:
    from app_server.engine.workspace.patch.atomic_writer import EditDocument

AB = ("@@", "-a", "+b")
SCRIPT = str(Path(atomic_writer.__file__))

FOUR = (
    *("*** Update File: one", *AB),
    *("*** Add File: deep/er/two", "+x"),
    "*** Delete File: three",
    *("*** Update File: four", "*** Move to: moved/four", *AB),
)


@pytest.fixture
def ws(tmp_path: Path) -> Path:
    folder = tmp_path / "ws"
    folder.mkdir()
    for name in ("one", "three", "four"):
        (folder / name).write_text("a\n")
    return folder


def test_every_kind_of_change_is_written(ws: Path) -> None:
    assert apply(ws, *FOUR) == (
        "Success. Updated the following files:\nA deep/er/two\nM one\nM moved/four\nD three\n"
    )
    assert tree(ws) == {"one": b"b\n", "deep/er/two": b"x\n", "moved/four": b"b\n"}


@pytest.mark.isolated
def test_it_runs_alone_as_a_script(ws: Path) -> None:
    done = subprocess.run(
        writer_command(sys.executable),
        input=plan(ws, *FOUR).document("t"),
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.endswith(b"D three\n")
    assert tree(ws) == {"one": b"b\n", "deep/er/two": b"x\n", "moved/four": b"b\n"}


def test_modes_stay_and_new_files_are_plain(ws: Path) -> None:
    (ws / "one").chmod(0o755)
    (ws / "four").chmod(0o600)
    before = os.umask(0o027)
    try:
        apply(ws, *FOUR)
    finally:
        os.umask(before)
    modes = {name: stat.S_IMODE((ws / name).stat().st_mode) for name in ("one", "moved/four", "deep/er/two")}
    assert modes == {"one": 0o755, "moved/four": 0o600, "deep/er/two": 0o640}


def test_a_hard_link_elsewhere_keeps_the_old_content(ws: Path, tmp_path: Path) -> None:
    os.link(ws / "one", tmp_path / "outside")
    apply(ws, "*** Update File: one", *AB)
    assert ((ws / "one").read_text(), (tmp_path / "outside").read_text()) == ("b\n", "a\n")


@pytest.mark.parametrize("code", [errno.EPERM, errno.ENOTSUP])
def test_a_disk_without_hard_links_takes_a_patch(
    ws: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", refuse)
    apply(ws, *FOUR)
    assert tree(ws) == {"one": b"b\n", "deep/er/two": b"x\n", "moved/four": b"b\n"}


def test_a_link_inside_is_kept_and_its_target_changed(ws: Path) -> None:
    (ws / "link").symlink_to("one")
    apply(ws, "*** Update File: link", *AB)
    assert tree(ws) == {"one": b"b\n", "three": b"a\n", "four": b"a\n", "link": "-> one"}


@pytest.mark.parametrize("changed", ["one", "three", "four"])
def test_a_file_changed_since_the_plan_stops_everything(ws: Path, changed: str) -> None:
    made = plan(ws, *FOUR)
    (ws / changed).write_text("edited meanwhile\n")
    before = tree(ws)
    status, out, err = write(made)
    assert (status, out) == (1, "")
    assert changed in err
    assert "has changed since" in err
    assert tree(ws) == before
    assert not (ws / "deep").exists()


@pytest.mark.parametrize("name", ["deep/er/two", "moved/four"])
def test_a_file_that_came_into_being_since_the_plan_is_not_overwritten(ws: Path, name: str) -> None:
    made = plan(ws, *FOUR)
    (ws / name).parent.mkdir(parents=True)
    (ws / name).write_text("mine\n")
    before = tree(ws)
    status, _, err = write(made)
    assert (status, err) == (
        1,
        f"Failed to write file {name}: it has come into being since the patch was checked\n",
    )
    assert tree(ws) == before


def test_a_link_swapped_in_since_the_plan_is_not_followed(ws: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (ws / "sub").mkdir()
    made = plan(ws, "*** Add File: sub/n", "+x", "*** Update File: one", *AB)
    (ws / "sub").rmdir()
    (ws / "sub").symlink_to(out)
    status, _, err = write(made)
    assert status == 1
    assert err.startswith("Failed to create parent directories for sub/n")
    assert (tree(out), (ws / "one").read_text()) == ({}, "a\n")


def test_a_target_swapped_for_a_link_or_a_directory_is_refused(ws: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("a\n")
    made = plan(ws, "*** Update File: one", *AB)
    (ws / "one").unlink()
    (ws / "one").symlink_to(tmp_path / "outside")
    assert write(made)[0] == 1
    assert (tmp_path / "outside").read_text() == "a\n"
    (ws / "one").unlink()
    (ws / "one").mkdir()
    assert write(made) == (1, "", "Failed to write file one: Is a directory (os error 21)\n")


def edits(ws: Path) -> list[EditDocument]:
    value = json.loads(plan(ws, *FOUR).document("t"))["edits"]
    assert isinstance(value, list)
    return value


class FullDisk(Writer):
    """Writer whose disk is full at the n-th change."""

    left = 0

    def put_new(self, fd: int, step: WriteStep) -> None:
        self.count()
        super().put_new(fd, step)

    def put_over(self, fd: int, step: WriteStep) -> None:
        self.count()
        super().put_over(fd, step)

    def count(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise OSError(errno.ENOSPC, "full")


@pytest.mark.parametrize("after", [0, 1, 2])
def test_a_failure_in_the_middle_takes_back_what_was_done(ws: Path, after: int) -> None:
    before = tree(ws)
    inode = (ws / "one").stat().st_ino
    folders = OpenFolders()
    work = FullDisk("t", str(ws), folders)
    work.left = after
    work.stage(edits(ws))
    with pytest.raises(OSError, match="full"):
        work.commit()
    work.undo()
    work.close()
    folders.close()
    assert tree(ws) == before
    assert (ws / "one").stat().st_ino == inode
    assert sorted(path.name for path in ws.iterdir()) == ["four", "one", "three"]


@pytest.mark.parametrize("name", ["one", "three", "four"])
def test_a_change_between_check_and_commit_is_noticed(ws: Path, name: str) -> None:
    folders = OpenFolders()
    work = Writer("t", str(ws), folders)
    work.stage(edits(ws))
    (ws / name).write_text("edited at the last moment\n")
    with pytest.raises(WriteError):
        work.commit()
    work.undo()
    work.close()
    folders.close()
    assert tree(ws) == {"one": b"a\n", "three": b"a\n", "four": b"a\n"} | {
        name: b"edited at the last moment\n"
    }


@pytest.mark.isolated
def test_content_that_does_not_fit_leaves_everything_as_it_was(ws: Path) -> None:
    document = plan(ws, "*** Update File: one", *AB, "*** Add File: big", *["+" + "y" * 99] * 1000).document(
        "t"
    )
    before = tree(ws)
    done = subprocess.run(
        writer_command(sys.executable),
        input=document,
        capture_output=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000)),
    )
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr == b"Failed to write file big: File too large (os error 27)\n"
    assert tree(ws) == before


@pytest.mark.parametrize("path", ["/proc/x", "/proc/x/y"])
def test_a_refusal_has_the_words_that_ask_for_more_rights(ws: Path, path: str) -> None:
    """The kernel's own tree refuses new files to every user. Its error is ENOENT, so only the start is compared."""
    made = plan(ws, "*** Add File: n", "+x")
    document = made.document("t").replace(f"{ws}/n".encode(), path.encode())
    status, out, err = atomic_writer.apply_document(document)
    assert (status, out) == (1, "")
    start = "Failed to write file n" if path == "/proc/x" else "Failed to create parent directories for n"
    assert err.startswith(start)


KILLED = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from app_server.engine.workspace.patch import atomic_writer
left = int(sys.argv[2])
def dying(call):
    def one(*args):
        global left
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1
        return call(*args)
    return one
for name in ("note", "put_new", "put_over", "keep", "finish"):
    setattr(atomic_writer.Writer, name, dying(getattr(atomic_writer.Writer, name)))
atomic_writer.apply_document(sys.stdin.buffer.read())
"""


@pytest.mark.parametrize("after", range(12))
def test_after_a_kill_the_next_writer_finds_all_or_nothing(ws: Path, after: int) -> None:
    before = tree(ws)
    document = plan(ws, *FOUR).document("killed")
    done = subprocess.run(
        [sys.executable, "-I", "-c", KILLED, str(Path(SCRIPT).parents[3]), str(after)],
        input=document,
        capture_output=True,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    status, _, err = write(plan(ws, "*** Add File: next", "+x"), "next", recover=True)
    assert (status, err) == (0, "")
    finished = {"one": b"b\n", "deep/er/two": b"x\n", "moved/four": b"b\n"}
    assert tree(ws) in ({**before, "next": b"x\n"}, {**finished, "next": b"x\n"})


def test_leftovers_are_not_touched_without_recovery(ws: Path) -> None:
    forged = {
        "folder": str(ws),
        "name": "one",
        "temp": ".apply-patch-x",
        "staged": identity(os.open(ws, 0), "one"),
    }
    journal = ws / ".apply-patch-x.journal"
    journal.write_text(json.dumps(forged) + "\n")
    write(plan(ws, "*** Add File: n", "+x"))
    assert (ws / "one").read_text() == "a\n"
    assert journal.exists()


def test_the_journal_of_a_living_writer_is_left_alone(ws: Path) -> None:
    folders = OpenFolders()
    work = Writer("alive", str(ws), folders)
    work.stage(edits(ws))
    write(plan(ws, "*** Add File: n", "+x"), "other", recover=True)
    work.commit()
    work.finish()
    work.close()
    folders.close()
    assert tree(ws) == {"one": b"b\n", "deep/er/two": b"x\n", "moved/four": b"b\n", "n": b"x\n"}


def test_the_journal_follows_no_link_that_the_working_directory_has_become(ws: Path, tmp_path: Path) -> None:
    (ws / "sub").mkdir()
    two = plan(ws / "sub", "*** Update File: ../one", *AB, "*** Delete File: ../three")
    outside = tmp_path / "outside"
    outside.mkdir()
    (ws / "sub").rmdir()
    (ws / "sub").symlink_to(outside)
    before = outside.stat().st_mtime_ns
    status, _, _ = atomic_writer.apply_document(two.document("t", recover=True))
    assert status == 0
    assert outside.stat().st_mtime_ns == before, "not even for a moment"
    assert (ws / "one").read_bytes() == b"b\n"
    assert not (ws / "three").exists()


def test_a_plan_names_only_real_paths(ws: Path, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(ws)
    assert plan(tmp_path / "alias", *FOUR).cwd == str(ws)


def test_a_replaced_file_keeps_its_mode_but_no_set_user_id_bit(ws: Path) -> None:
    (ws / "one").chmod(0o6750)
    apply(ws, "*** Update File: one", *AB)
    assert stat.S_IMODE((ws / "one").stat().st_mode) == 0o750


@pytest.mark.skipif(sys.platform != "linux", reason="attributes are copied on Linux only")
def test_a_replaced_file_keeps_its_attributes(ws: Path) -> None:
    try:
        os.setxattr(ws / "one", "user.note", b"kept")
        os.setxattr(ws / "one", "user.other", b"too")
    except OSError:
        pytest.skip("this file system has no attributes")
    apply(ws, "*** Update File: one", *AB)
    assert os.getxattr(ws / "one", "user.note") == b"kept"
    assert os.getxattr(ws / "one", "user.other") == b"too"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_a_replaced_file_keeps_its_owner(ws: Path) -> None:
    os.chown(ws / "one", 12345, 54321)
    apply(ws, "*** Update File: one", *AB)
    found = (ws / "one").stat()
    assert (found.st_uid, found.st_gid) == (12345, 54321)
