"""Rules files: which are read, how a rule is added, and what becomes of a file that others could have written."""

import os
import threading
from pathlib import Path

import pytest

from app_server.core.approvals.rule_book import (
    DEFAULT,
    FOLDER,
    MAX_BYTES,
    RuleBook,
    RulesUnusable,
    append_rule,
    read_rules,
)
from app_server.core.approvals.rules_text import rule_line

ALLOW_CP = 'prefix_rule(pattern=["cp"], decision="allow")\n'


def rules_file(home: Path, content: str | bytes = ALLOW_CP, name: str = DEFAULT) -> Path:
    (home / FOLDER).mkdir(exist_ok=True)
    path = home / FOLDER / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_without_files_there_are_no_rules(tmp_path: Path) -> None:
    assert read_rules(tmp_path) == read_rules(tmp_path / "missing")
    assert read_rules(tmp_path).problems == ()
    assert not (tmp_path / FOLDER).exists()


def test_a_rule_is_added_to_what_the_user_wrote(tmp_path: Path) -> None:
    path = rules_file(tmp_path, "# mine" + "\n" + ALLOW_CP.strip())
    append_rule(tmp_path, ("touch", 'a "b"'))
    append_rule(tmp_path, ("touch", 'a "b"'))
    assert path.read_text() == (
        "# mine\n" + ALLOW_CP + 'prefix_rule(pattern=["touch", "a \\"b\\""], decision="allow")\n'
    )
    assert len(read_rules(tmp_path).rules) == 2


def test_files_are_the_users_own(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        append_rule(tmp_path, ("touch",))
    finally:
        os.umask(before)
    assert (tmp_path / FOLDER).stat().st_mode & 0o777 == 0o700
    assert (tmp_path / FOLDER / DEFAULT).stat().st_mode & 0o777 == 0o600


def test_every_file_with_the_ending_is_read(tmp_path: Path) -> None:
    rules_file(tmp_path, 'prefix_rule(pattern=["a"], decision="forbidden")', "team.rules")
    rules_file(tmp_path)
    rules_file(tmp_path, "not rules", "notes.txt")
    found = read_rules(tmp_path)
    assert ([rule.pattern[0][0] for rule in found.rules], found.problems) == (["cp", "a"], ())


@pytest.mark.parametrize(
    "spoil", ["link", "hard link", "pipe", "directory", "open to all", "too large", "binary"]
)
def test_a_file_that_cannot_be_trusted_is_not_used_and_not_changed(tmp_path: Path, spoil: str) -> None:
    path, other = rules_file(tmp_path), tmp_path / "other"
    other.write_text(ALLOW_CP)
    if spoil == "open to all":
        path.chmod(0o666)
    elif spoil == "too large":
        path.write_text(ALLOW_CP + "#" * 300_000)
    elif spoil == "binary":
        path.write_bytes(b"\xff\xfe" + os.urandom(100))
    else:
        path.unlink()
        match spoil:
            case "link":
                path.symlink_to(other)
            case "hard link":
                path.hardlink_to(other)
            case "pipe":
                os.mkfifo(path)
            case _:
                path.mkdir()
    found = read_rules(tmp_path)
    assert found.rules == ()
    assert len(found.problems) == 1
    assert str(path) in found.problems[0]
    with pytest.raises((RulesUnusable, OSError)):
        append_rule(tmp_path, ("touch",))
    assert other.read_text() == ALLOW_CP


@pytest.mark.parametrize("mode", [None, 0o777])
def test_a_folder_that_is_a_link_or_open_to_all_is_not_used(tmp_path: Path, mode: int | None) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    rules_file(elsewhere)
    if mode is None:
        (tmp_path / FOLDER).symlink_to(elsewhere / FOLDER)
    else:
        rules_file(tmp_path).parent.chmod(mode)
    found = read_rules(tmp_path)
    assert (found.rules, len(found.problems)) == ((), 1)
    with pytest.raises((RulesUnusable, OSError)):
        append_rule(tmp_path, ("touch",))


def test_a_damaged_file_is_not_extended(tmp_path: Path) -> None:
    path = rules_file(tmp_path, ALLOW_CP + "xx(")
    found = read_rules(tmp_path)
    assert (found.rules, len(found.problems)) == ((), 1)
    with pytest.raises(RulesUnusable, match="damaged"):
        append_rule(tmp_path, ("touch",))
    assert path.read_text() == ALLOW_CP + "xx("


def test_two_servers_add_rules_at_once(tmp_path: Path) -> None:
    def add(server: int) -> None:
        for number in range(20):
            append_rule(tmp_path, ("touch", f"{server}-{number}"))

    servers = [threading.Thread(target=add, args=(server,)) for server in range(4)]
    for each in servers:
        each.start()
    for each in servers:
        each.join()
    found = read_rules(tmp_path)
    assert (len(found.rules), found.problems) == (80, ())


async def test_a_rule_that_cannot_be_stored_holds_in_its_conversation(tmp_path: Path) -> None:
    rules_file(tmp_path, "xx(")
    book = RuleBook(tmp_path)
    problem = await book.keep(("touch",))
    assert problem is not None
    assert "this thread only" in problem
    assert book.allows(("touch", "a"))
    assert not RuleBook(tmp_path).allows(("touch", "a"))


def test_a_problem_says_what_it_is(tmp_path: Path) -> None:
    path = rules_file(tmp_path)
    path.unlink()
    path.symlink_to(tmp_path / "other")
    assert read_rules(tmp_path).problems == (f"{path} is not read, so no rule in it holds: it is a link",)
    path.unlink()
    path.mkdir()
    (problem,) = read_rules(tmp_path).problems
    assert not problem.endswith("it is a link")
    path.rmdir()
    path.write_text(ALLOW_CP + "#" * 300_000)
    (problem,) = read_rules(tmp_path).problems
    assert not problem.endswith(("it is a link", "None", "it cannot be opened"))


def test_a_book_has_the_rules_of_the_home_and_says_what_is_wrong(tmp_path: Path) -> None:
    rules_file(tmp_path, 'prefix_rule(pattern=["rm"], decision="forbidden")\n' + ALLOW_CP)
    book = RuleBook(tmp_path)
    assert book.problems == ()
    assert book.allows(("cp", "a"))
    assert book.restriction(("rm", "a")) is not None
    assert book.restriction(("cp", "a")) is None
    rules_file(tmp_path, ALLOW_CP + "xx(")
    damaged = RuleBook(tmp_path)
    assert not damaged.allows(("cp", "a"))
    assert len(damaged.problems) == 1
    empty = RuleBook()
    assert (empty.problems, empty.allows(("cp", "a"))) == ((), False)


def test_a_rule_begins_a_line_of_its_own_and_is_added_once(tmp_path: Path) -> None:
    path = rules_file(tmp_path, ALLOW_CP.rstrip("\n"))
    append_rule(tmp_path, ("touch", "a"))
    append_rule(tmp_path, ("touch", "a"))
    append_rule(tmp_path, ("touch", "b"))
    assert path.read_text() == ALLOW_CP + rule_line(("touch", "a")) + rule_line(("touch", "b"))
    other = tmp_path / "other"
    other.mkdir()
    append_rule(other, ("touch",))
    (made,) = (other / FOLDER).iterdir()
    assert made.read_text() == rule_line(("touch",))


def test_a_file_may_be_as_large_as_the_limit_and_no_larger(tmp_path: Path) -> None:
    line = rule_line(("touch",))
    path = rules_file(tmp_path, ALLOW_CP + "#" * (MAX_BYTES - len(ALLOW_CP)))
    assert len(read_rules(tmp_path).rules) == 1
    path.write_text(path.read_text() + "#")
    assert read_rules(tmp_path).rules == ()
    path.write_text(ALLOW_CP + "#" * (MAX_BYTES - len(ALLOW_CP) - len(line) - 1) + "\n")
    append_rule(tmp_path, ("touch",))
    assert path.stat().st_size == MAX_BYTES
    with pytest.raises(RulesUnusable, match="larger than"):
        append_rule(tmp_path, ("cat",))
