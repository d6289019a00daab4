"""File requests of clients: contents, directories, copies, and refusals."""

import os
import stat
from functools import partial
from pathlib import Path

import pytest

from app_server.engine.support.engine_errors import FileRefused
from app_server.engine.workspace.fs import client_files
from app_server.engine.workspace.fs.client_files import (
    ClientFiles,
    CopyStopped,
    DirectoryEntry,
    replace_content,
)

NO_HOME = "/nonexistent"
FILES = ClientFiles(NO_HOME)


def read(path: Path, home: Path | str = NO_HOME) -> bytes:
    return ClientFiles(str(home)).read(str(path))


def copy(source: Path, destination: Path, *, recursive: bool = True, home: Path | str = NO_HOME) -> None:
    ClientFiles(str(home)).copy(str(source), str(destination), lambda: False, recursive=recursive)


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_a_write_keeps_the_rights_and_the_link(tmp_path: Path) -> None:
    path, link = tmp_path / "f", tmp_path / "link"
    path.write_text("old")
    path.chmod(0o751)
    link.symlink_to("f")
    FILES.write(str(link), b"new")
    assert link.is_symlink()
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == ("new", 0o751)


def test_a_file_of_several_names_stays_one_file(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("a longer old content")
    os.link(path, tmp_path / "other")
    FILES.write(str(path), b"new")
    assert (tmp_path / "other").read_text() == "new"


@pytest.mark.parametrize("several_names", [False, True])
def test_what_cannot_be_written_leaves_the_old_content(tmp_path: Path, several_names: bool) -> None:
    path = tmp_path / "f"
    path.write_text("old")
    if several_names:
        os.link(path, tmp_path / "other")
    before = names(tmp_path)

    def fails(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        replace_content(str(path), fails, 3)
    assert (path.read_text(), names(tmp_path)) == ("old", before)


def test_a_file_in_a_closed_directory_is_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "f"
    path.write_text("a longer old content")
    monkeypatch.setattr(client_files, "STAGED", os.O_WRONLY)  # no user can create a file here
    monkeypatch.setattr(client_files, "CANNOT_STAGE", (2,))
    replace_content(str(path), partial(client_files.write_all, data=b"new"), 3)
    assert path.read_text() == "new"


def test_pipes_and_directories_are_not_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", tmp_path, Path("/dev/zero")):
        with pytest.raises(FileRefused, match="is not a file"):
            read(path)
    with pytest.raises(FileRefused, match="is not a file"):
        FILES.write(str(tmp_path / "fifo"), b"x")
    with pytest.raises(IsADirectoryError):
        FILES.write(str(tmp_path), b"x")


def test_a_giant_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "giant").open("wb") as file:
        file.truncate(client_files.MAX_READ_BYTES + 1)
    with pytest.raises(FileRefused, match="larger than"):
        read(tmp_path / "giant")


def test_credentials_are_not_read_by_any_name(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "auth.json").write_text("sk-secret")
    (home / "config.toml").write_text("model = 'm'")
    (tmp_path / "link").symlink_to("home/auth.json")
    os.link(home / "auth.json", tmp_path / "hard")
    for path in (
        home / "auth.json",
        home / ".." / "home" / "auth.json",
        tmp_path / "link",
        tmp_path / "hard",
    ):
        with pytest.raises(FileRefused, match="secrets"):
            read(path, home)
        with pytest.raises(FileRefused, match="secrets"):
            copy(path.resolve(), tmp_path / "copy", home=home)
    with pytest.raises(FileRefused, match="secrets"):
        copy(home, tmp_path / "copy", home=home)
    assert read(home / "config.toml", home) == b"model = 'm'"


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="a system without /proc")
def test_what_the_system_shows_of_processes_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/proc/self/environ")
    for path in (Path("/proc/self/environ"), Path(f"/proc/{os.getppid()}/environ"), tmp_path / "link"):
        with pytest.raises(FileRefused, match="secrets"):
            read(path)
    assert read(Path("/proc/version"))


def test_metadata_and_names(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "f").write_text("x")
    (tmp_path / "to-f").symlink_to("f")
    (tmp_path / "to-nothing").symlink_to("nothing")
    (tmp_path / "circle").symlink_to("circle")
    os.close(os.open(os.fsencode(tmp_path) + b"/\xff", os.O_CREAT))
    assert FILES.list(str(tmp_path)) == [
        DirectoryEntry("circle", is_directory=False, is_file=False),
        DirectoryEntry("d", is_directory=True, is_file=False),
        DirectoryEntry("f", is_directory=False, is_file=True),
        DirectoryEntry("to-f", is_directory=False, is_file=True),
        DirectoryEntry("to-nothing", is_directory=False, is_file=False),
        DirectoryEntry("\ufffd", is_directory=False, is_file=True),
    ]
    found = FILES.metadata(str(tmp_path / "to-f"))
    assert (found.is_file, found.is_directory, found.is_symlink) == (True, False, True)
    assert found.modified_at_ms == (tmp_path / "f").stat().st_mtime_ns // 1_000_000
    with pytest.raises(FileNotFoundError):
        FILES.metadata(str(tmp_path / "to-nothing"))


def test_directories_are_made(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        FILES.create_directory(str(tmp_path / "a" / "b"), recursive=False)
    for _ in range(2):
        FILES.create_directory(str(tmp_path / "a" / "b"), recursive=True)
    assert (tmp_path / "a" / "b").is_dir()


def test_links_are_removed_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "f").touch()
    (tmp_path / "tree").mkdir()
    for link in (tmp_path / "link", tmp_path / "tree" / "link"):
        link.symlink_to(tmp_path / "kept")
    with pytest.raises(OSError, match="not empty"):
        FILES.remove(str(tmp_path / "tree"), recursive=False, force=True)
    for path in (tmp_path / "link", tmp_path / "tree"):
        FILES.remove(str(path), recursive=True, force=False)
    assert names(tmp_path) == {"kept", "kept/f"}
    FILES.remove(str(tmp_path / "absent"), recursive=True, force=True)
    with pytest.raises(FileNotFoundError):
        FILES.remove(str(tmp_path / "absent"), recursive=True, force=False)
    with pytest.raises(FileRefused, match="root"):
        FILES.remove("/..", recursive=False, force=True)


def test_a_tree_is_copied_with_its_links_and_rights(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "d").mkdir(parents=True)
    (tree / "d" / "f").write_text("content")
    (tree / "d" / "f").chmod(0o750)
    (tree / "link").symlink_to("d")
    os.mkfifo(tree / "fifo")
    copied = tmp_path / "copied"
    copied.mkdir()
    (copied / "kept").touch()
    copy(tree, copied)
    assert names(copied) == {"kept", "d", "d/f", "link"}
    assert (copied / "d" / "f").read_text() == "content"
    assert stat.S_IMODE((copied / "d" / "f").stat().st_mode) == 0o750
    assert (copied / "link").readlink() == Path("d")


def test_a_copy_does_not_eat_itself(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "f").write_text("content")
    os.link(tree / "f", tmp_path / "same")
    (tmp_path / "link").symlink_to("tree")
    for destination in (tree, tree / "inner", tmp_path / "link" / "inner"):
        with pytest.raises(FileRefused, match="itself"):
            copy(tree, destination)
    for name in (tree / "f", tmp_path / "same"):
        copy(tree / "f", name)
        assert name.read_text() == "content"
    with pytest.raises(FileRefused, match="recursive"):
        copy(tree, tmp_path / "new", recursive=False)


def test_a_copy_that_nobody_waits_for_stops(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("content")
    with pytest.raises(CopyStopped):
        FILES.copy(str(tmp_path / "f"), str(tmp_path / "new"), lambda: True, recursive=False)
    assert names(tmp_path) == {"f"}
