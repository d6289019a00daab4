"""Looks at the files below folders: which may have changed, and what one look costs."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from app_server.engine.checkpoints import file_listing
from app_server.engine.checkpoints.file_listing import FileListing, TooManyFiles

MUCH_LATER = 1 << 62


def listing(root: Path, *, now_ns: int = MUCH_LATER, skips: frozenset[str] = frozenset()) -> FileListing:
    """Return a listing of a folder. `now_ns`: the time of each look."""
    return FileListing([str(root)], avoided="", skips=skips, most=100, stamp=lambda: now_ns)


def found(files: FileListing, root: Path) -> tuple[set[str], set[str]]:
    """Look at the files, and return those that may have changed and those that are missing."""
    differences = files.look()
    return (
        {os.path.relpath(path, root) for path in differences.touched},
        {os.path.relpath(path, root) for path in differences.missing},
    )


def status_of_files(root: Path) -> dict[str, tuple[int, int, int]]:
    """Return the status of each file, by a walk of its own."""
    status = {}
    for folder, folders, names in os.walk(root):
        if ".git" in (*folders, *names) and folder != str(root):
            folders.clear()
            continue
        folders[:] = [name for name in folders if name != ".git"]
        links = [name for name in folders if Path(folder, name).is_symlink()]
        for name in (*(each for each in names if each != ".git"), *links):
            path = os.path.join(folder, name)
            at = os.lstat(path)
            status[os.path.relpath(path, root)] = at.st_ctime_ns, at.st_size, at.st_ino
    return status


def change(draws: random.Random, root: Path) -> None:
    """Change something below a folder."""
    folders = [root, *(each for each in root.rglob("*") if each.is_dir() and not each.is_symlink())]
    place = draws.choice(folders) / draws.choice(("a", "b", "c", ".git"))
    other = draws.choice(folders) / draws.choice(("a", "b", "c"))
    try:
        match draws.randrange(8):
            case 0 | 1:
                place.write_bytes(draws.randbytes(draws.randrange(3)))
            case 2 | 3:
                place.mkdir()
            case 4:
                place.unlink()
            case 5:
                place.rmdir()
            case 6:
                place.rename(other)
            case _:
                place.symlink_to("elsewhere")
    except OSError:
        pass  # something else is there


@pytest.mark.parametrize("seed", range(40))
def test_a_look_reports_what_differs_from_the_last_one(tmp_path: Path, seed: int) -> None:
    draws, files, before = random.Random(seed), listing(tmp_path), dict[str, tuple[int, int, int]]()
    for _ in range(30):
        for _ in range(draws.randrange(4)):
            change(draws, tmp_path)
        now = status_of_files(tmp_path)
        differing = {path for path in now if before.get(path) != now[path]}
        assert found(files, tmp_path) == (differing, before.keys() - now.keys())
        before = now


def test_a_file_that_may_have_changed_again_at_the_same_time_is_reported_again(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"new")
    changed_ns = file.stat().st_ctime_ns
    at_once = listing(tmp_path, now_ns=changed_ns)
    assert [found(at_once, tmp_path) for _ in range(2)] == [({"file"}, set())] * 2
    later = listing(tmp_path, now_ns=changed_ns + file_listing.COARSE_STEP_NS)
    assert [found(later, tmp_path) for _ in range(2)] == [({"file"}, set()), (set(), set())]


def test_a_file_that_could_not_be_read_is_reported_again(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    files = listing(tmp_path)
    files.look()
    files.report_again(str(tmp_path / "file"))
    assert [found(files, tmp_path) for _ in range(2)] == [({"file"}, set()), (set(), set())]


def test_a_file_that_goes_during_a_look_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "folder"
    (folder / "inner").mkdir(parents=True)
    for name in ("goes", "changes", "inner/file"):
        (folder / name).write_bytes(b"old")
    files = listing(tmp_path)
    files.look()
    for name in ("changes", "inner/file"):
        (folder / name).write_bytes(b"newer")
    names_in = os.listdir

    def removes_one(at: int) -> list[str]:
        names = names_in(at)
        (folder / "goes").unlink(missing_ok=True)
        return names

    monkeypatch.setattr(os, "listdir", removes_one)
    assert found(files, tmp_path) == ({"folder/changes", "folder/inner/file"}, {"folder/goes"})


def test_names_that_are_skipped_and_large_files_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_listing, "MAX_NOTICED_FILE", 10)
    (tmp_path / "skipped").mkdir()
    for name in ("skipped/file", "skipped too", "large", "file"):
        (tmp_path / name).write_bytes(b"x" * (11 if name == "large" else 1))
    skips = frozenset({str(tmp_path / "skipped"), str(tmp_path / "skipped too")})
    assert found(listing(tmp_path, skips=skips), tmp_path) == ({"file"}, set())


def test_more_files_than_its_bound_are_refused(tmp_path: Path) -> None:
    for number in range(101):
        (tmp_path / str(number)).write_bytes(b"")
    with pytest.raises(TooManyFiles, match="more than 100 files"):
        listing(tmp_path).look()


def test_a_look_without_differences_costs_one_status_of_each_name_and_one_open_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(60):
        place = tmp_path / str(number // 10) / str(number)
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(b"")
    files = listing(tmp_path)
    files.look()
    calls: list[str] = []

    def counted(name: str, call: Callable[..., object]) -> None:
        def count(*arguments: object, **named: object) -> object:
            calls.append(name)
            return call(*arguments, **named)

        monkeypatch.setattr(os, name, count)

    counted("stat", os.stat)
    counted("open", os.open)
    counted("listdir", os.listdir)
    assert files.look().touched == {}
    names, folders, to_the_root = 60 + 6, 6 + 1, len(tmp_path.parts)
    assert calls.count("stat") == names
    assert calls.count("listdir") == folders
    assert calls.count("open") == folders + to_the_root
