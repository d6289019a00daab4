import os
import threading
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app_server.engine.support.rooted_fs import RootDir
from app_server.engine.workspace.files.fuzzy import PATHS, FileMatch, folded, parse_query, positions, score
from app_server.engine.workspace.files.search import FileSearch, has_in_order

FAR_AHEAD = 2**62


def never() -> bool:
    return False


def plant(root: Path, *paths: str) -> Path:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).touch()
    return root


def find(root: Path, query: str, search: FileSearch | None = None) -> list[FileMatch]:
    return (search or FileSearch(lambda: FAR_AHEAD)).find(query, [root], never)


def paths(matches: list[FileMatch]) -> list[str]:
    return [match.path for match in matches]


# --- scores
@pytest.mark.parametrize(
    ("query", "path", "points", "indices"),
    [
        ("alp", "alpha/beta.txt", 88, [0, 1, 2]),
        ("alp", ".hidden/alpha.txt", 84, [8, 9, 10]),
        ("log", "nested/keep.log", 80, [12, 13, 14]),
        ("foo", "xfoobar", 56, [1, 2, 3]),
        ("fb", "fooBar.txt", 53, [0, 3]),
        ("fb", "foo/bar/baz_qux.rs", 56, [0, 4]),
        ("foobar", "fooBar.txt", 166, [0, 1, 2, 3, 4, 5]),
        ("foobar", "foo-bar.txt", 157, [0, 1, 2, 4, 5, 6]),
        ("f b", "a/b/c/d/foo.txt", 68, [2, 8]),
        ("file name", "with space/file name.txt", 223, [11, 12, 13, 14, 16, 17, 18, 19]),
        ("nv", "café/naïve.txt", 46, [5, 8]),
        ("naïve", "café/naïve.txt", 134, [5, 6, 7, 8, 9]),
        ("c/d", "a/b/c/d/foo.txt", 84, [4, 5, 6]),
        ("c/d", "src/maintain.md", 40, [2, 3, 14]),
        (".", "alphabet.txt", 32, [8]),
        ("/", "foo/bar/baz", 16, [3]),
        ("abt", "alpha/beta.txt", 72, [0, 6, 11]),
        ("CC", "Alpha/CamelCase.py", 49, [6, 11]),
    ],
)
def test_scores_are_those_that_clients_know(query: str, path: str, points: int, indices: list[int]) -> None:
    words = parse_query(query)
    assert sum(score(word, path, folded(path, word)) for word in words) == points
    found = {place for word in words for place in positions(word, path, folded(path, word))}
    assert sorted(found) == indices


@pytest.mark.parametrize(
    ("query", "path", "points", "indices"),
    [
        ("serv", "serverdir/x", 109, [0, 1, 2, 3]),
        ("serv", "docs/service.md", 109, [5, 6, 7, 8]),
        ("SERV", "my_serv_file.txt", 104, [3, 4, 5, 6]),
        ("serv", "s e r v", 97, [0, 2, 4, 6]),
        ("src", "xsrcx", 56, [1, 2, 3]),
        ("xy", "x:y/z", 55, [0, 2]),
        ("b", "a b/c d", 32, [2]),
        ("cl src", "lib/src/cl.py", 143, [4, 5, 6, 8, 9]),
    ],
)
def test_scores_of_paths_are_those_that_newer_clients_know(
    query: str, path: str, points: int, indices: list[int]
) -> None:
    words = parse_query(query, smart_case=False)
    assert sum(score(word, path, folded(path, word), PATHS) for word in words) == points
    found = {place for word in words for place in positions(word, path, folded(path, word), PATHS)}
    assert sorted(found) == indices


@given(st.text("abB/._1é ", min_size=1, max_size=14), st.text("abB1é", min_size=1, max_size=4))
@settings(max_examples=300)
def test_positions_spell_the_word_and_nothing_raises(path: str, query: str) -> None:
    (word,) = parse_query(query)
    fold = folded(path, word)
    if not has_in_order(word, fold):
        return
    assert score(word, path, fold) > 0
    found = positions(word, path, fold)
    assert found == sorted(set(found))
    assert "".join(fold[place] for place in found) == folded(word.text, word)


# --- searching
def test_matches_come_best_first_and_equals_by_path(tmp_path: Path) -> None:
    plant(tmp_path, "alpha/beta.txt", "alphabet.txt", ".hidden/alpha.txt", "ignored/alpha.log", "src/x")
    (tmp_path / ".gitignore").write_text("ignored/\n")
    assert find(tmp_path, "alp") == [
        FileMatch(str(tmp_path), "alpha/beta.txt", "beta.txt", 88, (0, 1, 2)),
        FileMatch(str(tmp_path), "alphabet.txt", "alphabet.txt", 88, (0, 1, 2)),
        FileMatch(str(tmp_path), ".hidden/alpha.txt", "alpha.txt", 84, (8, 9, 10)),
    ]
    assert find(tmp_path, "zzz") == []
    assert find(tmp_path, "") == []


def test_a_capital_in_the_query_matches_a_capital_only(tmp_path: Path) -> None:
    plant(tmp_path, "Alpha", "alpha")
    assert paths(find(tmp_path, "alp")) == ["Alpha", "alpha"]
    assert paths(find(tmp_path, "Alp")) == ["Alpha"]


def test_all_words_must_fit(tmp_path: Path) -> None:
    plant(tmp_path, "foo/bar", "foo/qux", "with space")
    assert paths(find(tmp_path, "bar foo")) == ["foo/bar"]
    assert paths(find(tmp_path, "h\\ s")) == ["with space"]


def test_no_more_than_fifty_are_given_for_a_root(tmp_path: Path) -> None:
    plant(tmp_path, *(f"item{number:03}" for number in range(120)))
    assert paths(find(tmp_path, "item")) == [f"item{number:03}" for number in range(50)]


def test_several_roots_are_searched_together(tmp_path: Path) -> None:
    one, two = plant(tmp_path / "one", "foo", "xfoo"), plant(tmp_path / "two", "foo")
    found = FileSearch(lambda: FAR_AHEAD).find("foo", [one, two, tmp_path / "none"], never)
    assert [(match.root, match.path) for match in found] == [
        (str(one), "foo"),
        (str(two), "foo"),
        (str(one), "xfoo"),
    ]


def test_the_data_of_git_is_never_found(tmp_path: Path) -> None:
    plant(tmp_path, ".git/config", "sub/.git/config", "config")
    assert paths(find(tmp_path, "config")) == ["config"]


def test_rules_from_around_the_root_hold_up_to_its_repository(tmp_path: Path) -> None:
    plant(
        tmp_path, "repo/.git/HEAD", "repo/sub/keep.c", "repo/sub/drop.o", "repo/sub/deep/gone.c", "repo/sub/x"
    )
    (tmp_path / ".gitignore").write_text("*.c\n")
    (tmp_path / "repo" / ".gitignore").write_text("*.o\n/sub/deep\n")
    plant(tmp_path, "repo/.git/info/exclude")
    (tmp_path / "repo" / ".git" / "info" / "exclude").write_text("x\n")
    assert paths(find(tmp_path / "repo" / "sub", "e")) == ["keep.c"]
    assert find(tmp_path / "repo" / "sub", "x") == []


def test_links_lead_to_files_and_to_folders_of_the_root_only(tmp_path: Path) -> None:
    root = plant(tmp_path / "root", "real/inner", "file")
    plant(tmp_path / "outside", "secret")
    (root / "linked").symlink_to("real")
    (root / "loop").symlink_to(".")
    (root / "real" / "up").symlink_to("..")
    (root / "away").symlink_to(tmp_path / "outside")
    (root / "linked_file").symlink_to("file")
    (root / "nowhere").symlink_to("none")
    os.mkfifo(root / "pipe")
    assert sorted(paths(find(root, "e"))) == ["file", "linked/inner", "linked_file", "real/inner"]


def test_odd_names_are_shown_as_well_as_they_can_be(tmp_path: Path) -> None:
    plant(tmp_path, "foo\nbar", "foo\tx")
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/foo\xff\xfe")).touch()
    assert set(paths(find(tmp_path, "foo"))) == {"foo\nbar", "foo\tx", "foo\ufffd\ufffd"}


def test_names_beyond_ascii_do_not_disturb_others(tmp_path: Path) -> None:
    plant(tmp_path, "Übung.txt", "İstanbul.txt", "plain.txt")
    assert set(paths(find(tmp_path, "txt"))) == {"Übung.txt", "İstanbul.txt", "plain.txt"}
    assert paths(find(tmp_path, "ubung")) == ["Übung.txt"]
    assert paths(find(tmp_path, "übu")) == ["Übung.txt"]


# --- by name
def by_name(root: Path, query: str) -> list[tuple[int, str, bool, tuple[int, ...]]]:
    found = FileSearch(lambda: FAR_AHEAD).find(query, [root], never, names_count=True)
    return [(match.score, match.path, match.is_folder, match.indices) for match in found]


def test_names_count_more_than_the_folders_that_lead_to_them(tmp_path: Path) -> None:
    plant(tmp_path, "a/Serv", "docs/service.md", "serverdir/x", "src/server.py", "src/sub/xsrcx")
    assert by_name(tmp_path, "serv") == [
        (196717, "a/Serv", False, (2, 3, 4, 5)),
        (65645, "docs/service.md", False, (5, 6, 7, 8)),
        (65645, "src/server.py", False, (4, 5, 6, 7)),
        (109, "serverdir", True, (0, 1, 2, 3)),
        (109, "serverdir/x", False, (0, 1, 2, 3)),
    ]
    assert by_name(tmp_path, "src")[:3] == [
        (131156, "src", True, (0, 1, 2)),
        (65595, "docs/service.md", False, (5, 7, 10)),
        (65592, "src/sub/xsrcx", False, (9, 10, 11)),
    ]
    assert by_name(tmp_path, "py server") == [(215, "src/server.py", False, (4, 5, 6, 7, 8, 9, 11, 12))]
    assert by_name(tmp_path, "") == []


def test_folders_are_found_by_links_too_and_without_what_is_ignored(tmp_path: Path) -> None:
    plant(tmp_path, "real/f", "hidden/f", ".git/f")
    (tmp_path / ".gitignore").write_text("hidden\n")
    (tmp_path / "linked").symlink_to("real")
    (tmp_path / "away").symlink_to(tmp_path.parent)
    found = FileSearch(lambda: FAR_AHEAD)
    for query, folders in (
        ("real", ["real"]),
        ("linked", ["linked"]),
        ("hidden", []),
        ("git", []),
        ("away", []),
    ):
        matches = found.find(query, [tmp_path], never, names_count=True)
        assert [match.path for match in matches if match.is_folder] == folders


def test_fifty_of_all_roots_are_given(tmp_path: Path) -> None:
    one = plant(tmp_path / "one", *(f"item{number:03}" for number in range(40)))
    two = plant(tmp_path / "two", *(f"item{number:03}" for number in range(40)))
    found = FileSearch(lambda: FAR_AHEAD).find("item", [one, two], never, names_count=True)
    assert [match.path for match in found] == [f"item{number // 2:03}" for number in range(50)]


# --- remembering
def test_what_changes_between_searches_is_seen(tmp_path: Path) -> None:
    search = FileSearch(lambda: FAR_AHEAD)
    plant(tmp_path, "a/one", "b/one")
    assert paths(find(tmp_path, "one", search)) == ["a/one", "b/one"]
    plant(tmp_path, "b/one_more", "c/one")
    (tmp_path / "a" / "one").unlink()
    assert paths(find(tmp_path, "one", search)) == ["b/one", "b/one_more", "c/one"]
    (tmp_path / ".gitignore").write_text("c\n")
    assert paths(find(tmp_path, "one", search)) == ["b/one", "b/one_more"]
    (tmp_path / ".gitignore").write_text("b/\n")
    assert paths(find(tmp_path, "one", search)) == ["c/one"]
    (tmp_path / ".gitignore").unlink()
    assert paths(find(tmp_path, "one", search)) == ["b/one", "b/one_more", "c/one"]


def test_folders_that_did_not_change_are_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    scandir = os.scandir

    def counting(folder: int) -> object:
        read.append(os.fstat(folder).st_ino)
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", counting)
    search = FileSearch(lambda: FAR_AHEAD)
    plant(tmp_path, "a/one", "b/one")
    find(tmp_path, "one", search)
    assert len(read) == 3
    plant(tmp_path, "b/two")
    find(tmp_path, "one", search)
    assert read[3:] == [(tmp_path / "b").stat().st_ino]


def test_a_folder_that_has_become_a_link_out_is_left_out(tmp_path: Path) -> None:
    """This holds also if its modification time is the same, and if it changes between listing and entering."""
    plant(tmp_path, "out/secret", "ws/b/one")
    root, disk = tmp_path / "ws", RootDir(tmp_path / "ws")
    assert paths(find(root, "one", search := FileSearch(lambda: FAR_AHEAD))) == ["b/one"]
    (root / "b").rename(tmp_path / "kept")
    (root / "b").symlink_to("../out")
    assert paths(find(root, "secret", search)) == []
    with disk, pytest.raises(OSError, match="Errno"), disk.entries("b"):
        pass


def test_a_folder_that_has_just_changed_is_not_trusted(tmp_path: Path) -> None:
    plant(tmp_path, "one")
    changed = tmp_path.stat().st_mtime_ns
    search = FileSearch(lambda: changed)
    find(tmp_path, "one", search)
    plant(tmp_path, "one_more")
    os.utime(tmp_path, ns=(changed, changed))
    assert paths(find(tmp_path, "one", search)) == ["one", "one_more"]


# --- being replaced


async def test_a_cancelled_search_ends_its_thread(tmp_path: Path) -> None:
    plant(tmp_path, "file")
    entered, ended = threading.Event(), threading.Event()

    class Slow(FileSearch):
        def find(
            self, query: str, roots: object, stop: Callable[[], bool], *, names_count: bool = False
        ) -> list[FileMatch]:
            entered.set()
            while not stop():
                ended.wait(0.01)
            ended.set()
            return []

    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(Slow(lambda: FAR_AHEAD).search, "file", [tmp_path])
            await anyio.to_thread.run_sync(entered.wait)
            group.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(ended.wait)
