"""The folders that a script may be in after its `cd`s."""

import pytest

from app_server.core.shell.safe_commands import MAX_FOLDERS, Reach


@pytest.mark.parametrize("words", [[], ["-"], ["a"], ["-L", "a"], ["-P", "a"], ["--", "a"]])
def test_a_change_of_folder_is_understood(words: list[str]) -> None:
    reach = Reach()
    assert not reach.has_moved
    assert reach.moves(words)
    assert reach.has_moved


@pytest.mark.parametrize("words", [["a", "b"], ["-x", "a"], ["-p", "a"]])
def test_a_change_that_is_not_understood_is_none(words: list[str]) -> None:
    assert not Reach().moves(words)


def test_each_change_may_have_failed_and_only_so_many_folders_are_tracked() -> None:
    reach = Reach()
    for name in ("a", "b", "c"):  # 2, 4, 8 folders
        assert reach.moves([name])
    assert MAX_FOLDERS == 8
    assert not reach.moves(["d"])


@pytest.mark.parametrize(
    ("moves", "program", "paths", "allowed"),
    [
        ([], "cat", ["f", "src/proc/x", "../README"], True),
        ([], "cat", [], True),
        ([], "cat", ["f", "/proc/1/environ"], False),
        ([], "ls", ["/"], True),
        ([], "grep", ["/"], False),
        ([], "rg", ["/usr", ".."], False),
        ([], "rg", ["/usr"], True),
        ([], "rg", [], True),
        (["/"], "rg", [], False),
        (["/"], "cat", ["proc/1/environ"], False),
        (["/usr"], "cat", ["proc/1/environ"], True),
        (["/usr"], "cat", ["../proc/1/environ"], False),
        (["/usr", ".."], "cat", ["dev/tty"], False),
        (["a"], "cat", ["../f"], True),
        (["a"], "cat", ["../../dev/tty"], False),
        (["-"], "cat", ["f"], True),
        ([], "cat", ["/home/me/.ssh/id"], False),
        ([], "cat", ["a/.env"], False),
        ([], "cat", [".env.sample"], True),
        (["/etc"], "cat", ["shadow"], False),
        (["/etc"], "cat", ["passwd"], True),
        ([], "cat", ["etc/shadow"], True),
    ],
)
def test_paths_are_judged_from_every_folder_that_the_script_may_be_in(
    moves: list[str], program: str, paths: list[str], allowed: bool
) -> None:
    reach = Reach()
    for target in moves:
        assert reach.moves([target])
    assert reach.allows(program, paths) is allowed
