"""Planning against real files: accepted patches, refusals, and that planning changes nothing."""

import os
import socket
from pathlib import Path

import pytest

from app_server.engine.workspace.patch import disk_files
from app_server.engine.workspace.patch.disk_files import DiskFiles
from app_server.engine.workspace.patch.parse import PatchError
from app_server.engine.workspace.patch.planner import resolve_place
from tests.engine.workspace.patch.worlds import plan, shown, tree
from tests.support.waiting import executed_lines

AB = ("@@", "-a", "+b")


def test_changes_are_shown_file_by_file(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a\nb\nc\nd\ne\n")
    (tmp_path / "gone.txt").write_text("bye\n")
    (tmp_path / "moved.txt").write_text("x\ny\n")
    (tmp_path / "noeol.txt").write_text("last")
    made = plan(
        tmp_path,
        *("*** Add File: deep/er/new.txt", "+n1", "+n2"),
        "*** Delete File: gone.txt",
        *("*** Update File: moved.txt", "*** Move to: here/moved.txt", "@@", " x", "-y", "+Y"),
        *("*** Update File: a.txt", "@@", " a", "-b", "+B", "@@", " d", "-e", "+E", "+F"),
        *("*** Update File: noeol.txt", "@@", "-last", "+new last"),
    )
    ws = str(tmp_path)
    assert shown(made) == {
        f"{ws}/a.txt": {
            "update": {"move_path": None, "unified_diff": "@@ -1,5 +1,6 @@\n a\n-b\n+B\n c\n d\n-e\n+E\n+F\n"}
        },
        f"{ws}/deep/er/new.txt": {"add": {"content": "n1\nn2\n"}},
        f"{ws}/gone.txt": {"delete": {"content": "bye\n"}},
        f"{ws}/moved.txt": {
            "update": {"move_path": f"{ws}/here/moved.txt", "unified_diff": "@@ -1,2 +1,2 @@\n x\n-y\n+Y\n"}
        },
        f"{ws}/noeol.txt": {
            "update": {
                "move_path": None,
                "unified_diff": "@@ -1 +1 @@\n-last\n\\ No newline at end of file\n+new last\n",
            }
        },
    }
    assert made.summary == (
        ("A", "deep/er/new.txt"),
        ("M", "here/moved.txt"),
        ("M", "a.txt"),
        ("M", "noeol.txt"),
        ("D", "gone.txt"),
    )


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            ("*** Update File: none", *AB),
            "Failed to read file to update {ws}/none: No such file or directory (os error 2)",
        ),
        (("*** Delete File: none",), "Failed to read {ws}/none: No such file or directory (os error 2)"),
        (("*** Update File: d", *AB), "Failed to read file to update {ws}/d: Is a directory (os error 21)"),
        (("*** Delete File: d",), "Failed to read {ws}/d: Is a directory (os error 21)"),
        (("*** Add File: f/x", "+y"), "Failed to write file {ws}/f/x: Not a directory (os error 20)"),
        (("*** Add File: .", "+y"), "Failed to write file {ws}: Is a directory (os error 21)"),
        (("*** Add File: ..", "+y"), "Failed to write file {up}: Is a directory (os error 21)"),
        (("*** Add File: new/", "+y"), "Failed to write file {ws}/new: Is a directory (os error 21)"),
        (("*** Add File: d", "+y"), "Failed to write file {ws}/d: Is a directory (os error 21)"),
        (
            ("*** Update File: f", "*** Move to: d", *AB),
            "Failed to write file {ws}/d: Is a directory (os error 21)",
        ),
        (("*** Update File: f", "*** Move to: g", *AB), "Failed to move {ws}/f: {ws}/g already exists"),
        (
            ("*** Update File: latin", *AB),
            "Failed to read file to update {ws}/latin: the file is not text",
        ),
        (("*** Delete File: latin",), "Failed to read {ws}/latin: the file is not text"),
        (("*** Add File: latin", "+x"), "Failed to write file {ws}/latin: the file is not text"),
        (("*** Add File: x\0y", "+x"), "a path in the patch holds a NUL character"),
        (("*** Add File: \ud800", "+x"), "a path in the patch is not valid Unicode"),
        (("*** Add File: n", "+\ud800"), "Failed to write file {ws}/n: the new text is not valid Unicode"),
        (
            ("*** Update File: f", "@@", "-a", "+\ud800"),
            "Failed to write file {ws}/f: the new text is not valid Unicode",
        ),
        (
            ("*** Update File: f", *AB, "*** Update File: g", "@@", "-zzz", "+q"),
            "Failed to find expected lines in {ws}/g:\nzzz",
        ),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_is_written(
    tmp_path: Path, lines: tuple[str, ...], message: str
) -> None:
    for name in ("f", "g"):
        (tmp_path / name).write_text("a\n")
    (tmp_path / "d").mkdir()
    (tmp_path / "latin").write_bytes(b"a\xff\0\n")
    before = tree(tmp_path)
    with pytest.raises(PatchError) as caught:
        plan(tmp_path, *lines)
    assert str(caught.value) == message.format(ws=tmp_path, up=tmp_path.parent)
    assert tree(tmp_path) == before


@pytest.mark.parametrize("name", ["n" * 300, "d/" * 3000 + "f"])
def test_a_path_too_long_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(PatchError, match="File name too long"):
        plan(tmp_path, f"*** Add File: {name}", "+x")
    assert tree(tmp_path) == {}


@pytest.mark.parametrize("target", ["pipe", "link", "socket", "/dev/null", "/dev/zero", "/proc/self/environ"])
def test_only_regular_files_are_opened(tmp_path: Path, target: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    with socket.socket(socket.AF_UNIX) as bound:
        here = Path.cwd()
        os.chdir(tmp_path)  # the address of a unix socket must be short
        bound.bind("socket")
        os.chdir(here)
        for lines in (
            (f"*** Update File: {target}", *AB),
            (f"*** Add File: {target}", "+x"),
            (f"*** Delete File: {target}",),
        ):
            with pytest.raises(PatchError, match="not a regular file"):
                plan(tmp_path, *lines)


def test_a_huge_file_is_refused_without_reading_it(tmp_path: Path) -> None:
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(disk_files.MAX_FILE_BYTES + 1)
    with pytest.raises(PatchError, match="larger than"):
        plan(tmp_path, "*** Update File: huge", *AB)


def test_the_work_of_planning_grows_with_the_patch(tmp_path: Path) -> None:
    """It does not grow with the square of the patch."""

    def work(lines: int) -> int:
        patch = ("*** Add File: n", *["+" + "y" * 60] * lines)
        return executed_lines(lambda: plan(tmp_path, *patch))

    assert (
        len(plan(tmp_path, "*** Add File: n", *["+" + "y" * 60] * 80_000).edits[0].new or b"") == 80_000 * 61
    )
    assert work(4_000) < 2.5 * work(2_000)


@pytest.mark.parametrize(
    "lines",
    [
        ("*** Add File: n", "+a", "*** Add File: n", "+b"),
        ("*** Add File: n", "+a", "*** Delete File: n"),
        ("*** Add File: n", "+a", "*** Update File: n", *AB),
        ("*** Delete File: f", "*** Update File: f", *AB),
        ("*** Update File: f", *AB, "*** Delete File: f"),
        ("*** Update File: f", "*** Move to: n", *AB, "*** Add File: n", "+x"),
        ("*** Add File: n", "+x", "*** Update File: f", "*** Move to: n", *AB),
        ("*** Update File: f", "*** Move to: n", *AB, "*** Update File: f", *AB),
        ("*** Update File: f", *AB, "*** Add File: alias", "+x"),
    ],
)
def test_a_patch_that_contradicts_itself_is_refused(tmp_path: Path, lines: tuple[str, ...]) -> None:
    (tmp_path / "f").write_text("a\n")
    (tmp_path / "alias").symlink_to("f")
    with pytest.raises(PatchError, match="contradicts itself"):
        plan(tmp_path, *lines)


def test_two_updates_of_one_file_follow_on_each_other(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a\nb\n")
    made = plan(tmp_path, "*** Update File: f", *AB, "*** Update File: ./f", "@@", " b", "-b", "+c")
    assert [(edit.old, edit.new) for edit in made.edits] == [(b"a\nb\n", b"b\nc\n")]
    assert made.summary == (("M", "f"), ("M", "./f"))


def test_a_file_deleted_and_added_again_is_changed(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a\n")
    (edit,) = plan(tmp_path, "*** Delete File: f", "*** Add File: f", "+b").edits
    assert (edit.old, edit.new, edit.to) == (b"a\n", b"b\n", None)


def test_an_add_over_a_file_is_shown_as_the_change_that_it_is(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("keep\n")
    made = plan(tmp_path, "*** Add File: f", "+new")
    assert shown(made) == {
        f"{tmp_path}/f": {"update": {"unified_diff": "@@ -1 +1 @@\n-keep\n+new\n", "move_path": None}}
    }


@pytest.mark.parametrize("to", ["f", "./f", "d/../f", "link"])
def test_a_file_moved_to_itself_is_changed(tmp_path: Path, to: str) -> None:
    (tmp_path / "f").write_text("a\n")
    (tmp_path / "d").mkdir()
    (tmp_path / "link").symlink_to("f")
    (edit,) = plan(tmp_path, "*** Update File: f", f"*** Move to: {to}", *AB).edits
    assert (edit.new, edit.to) == (b"b\n", None)


def test_a_link_is_resolved_and_shown_as_what_it_leads_to(tmp_path: Path) -> None:
    ws, out = tmp_path / "ws", tmp_path / "out"
    ws.mkdir()
    out.mkdir()
    (out / "real").write_text("a\n")
    (ws / "link").symlink_to(out / "real")
    (ws / "folder").symlink_to(out)
    (ws / "again").symlink_to("folder")
    (ws / "dangling").symlink_to(out / "created")
    names = ("link", "again/new", "dangling", "../out/real")
    places = [resolve_place(name, str(ws), DiskFiles(None)) for name in names]
    assert [(place.label, place.path, place.linked) for place in places] == [
        ("link", f"{out}/real", True),
        ("again/new", f"{out}/new", True),
        ("dangling", f"{out}/created", True),
        ("../out/real", f"{out}/real", False),
    ]
    assert all(place.real == place.path for place in places)


def test_a_linked_working_directory_keeps_its_name(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "ws").symlink_to("real")
    (place,) = plan(tmp_path / "ws", "*** Add File: sub/n", "+x").places()
    assert (place.path, place.real, place.linked) == (f"{tmp_path}/ws/sub/n", f"{tmp_path}/real/sub/n", False)


def test_a_file_that_may_not_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a\n")
    (tmp_path / "f").chmod(0o444)
    if os.access(tmp_path / "f", os.W_OK):
        pytest.skip("this user may write every file")
    with pytest.raises(PatchError, match="Permission denied"):
        plan(tmp_path, "*** Update File: f", *AB)
