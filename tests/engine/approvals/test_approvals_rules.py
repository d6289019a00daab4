"""Rules by first words: their effect, and the files from which they are read and to which they are added."""

import os
import shlex
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.engine.approvals import exec_policy
from app_server.engine.approvals.prefix_rules import UNCLEAR, PrefixRules
from app_server.engine.approvals.rules_text import PrefixRule, RuleDecision, parse_rules, rule_for, rule_line
from app_server.engine.approvals.shell.reachable_commands import MAX_DEPTH, MAX_WORK, PARSING
from app_server.engine.approvals.shell.safe_commands import is_known_safe

ALLOW, PROMPT, FORBIDDEN = RuleDecision
TEXT = """
# what this machine may do
prefix_rule(pattern=["touch"], decision="allow")
prefix_rule(
    pattern = ["git", ["push", "fetch"]],
    decision = "prompt",
    match = [["git", "push", "origin"], "git fetch"],
    not_match = ["git status"],
)
prefix_rule(pattern=["rm"], decision="forbidden", justification="use trash")
host_executable(name="git", paths=["/usr/bin/git"])
"""
RULES = PrefixRules(parse_rules(TEXT).rules)


def line(script: str) -> tuple[str, ...]:
    return ("bash", "-lc", script)


def trusted(program: str) -> bool:
    return True


def runs(script: str, rules: PrefixRules = RULES) -> bool:
    return is_known_safe(line(script), trusts=trusted, allowed=rules.allows)


@pytest.mark.parametrize("script", ["touch a b", "ls && touch a", "cd src; touch 'a b' | cat"])
def test_a_rule_allows_commands_that_begin_with_its_words(script: str) -> None:
    assert runs(script)


@pytest.mark.parametrize(
    "script",
    [
        *("touch a; cp a b", "touch a\ncp a b", "touch $(cp a b)", "touch a > b", "X=1 touch a", "./touch a"),
        *("touch a && git status", "sh -c 'cp a b' touch", "touchy a", "touch a &", "env touch a"),
    ],
)
def test_it_allows_nothing_around_them(script: str) -> None:
    assert not runs(script)


def test_what_destroys_is_allowed_only_by_a_rule_that_says_so() -> None:
    rules = PrefixRules([rule_for(("rm",)), rule_for(("rm", "-rf", "build"))])
    assert runs("rm a", rules)
    assert runs("rm -rf build", rules)
    assert not runs("rm -rf src", rules)


@pytest.mark.parametrize(
    ("script", "decision"),
    [
        *(
            ("git status", None),
            ("git push", PROMPT),
            ("cd x && git fetch --all", PROMPT),
            ("touch rm", None),
        ),
        *(("git push; rm a", FORBIDDEN), ("echo $(rm a)", FORBIDDEN), ("if true; then rm a; fi", FORBIDDEN)),
        *(("/bin/rm a", FORBIDDEN), ("env X=1 rm a", FORBIDDEN), ("bash -c 'sh -c \"rm a\"'", FORBIDDEN)),
        *(("r\\\nm a", FORBIDDEN), ("eval rm a", FORBIDDEN), ("find . -exec rm {} +", FORBIDDEN)),
        *(("bash <<< 'rm a'", FORBIDDEN), ("trap 'rm a' EXIT", FORBIDDEN), ("{rm,a}", FORBIDDEN)),
        *(("/bin/r? a", FORBIDDEN), ("! { rm a; }", FORBIDDEN), ("[ -f a ]", None), ("/bin/l? a", None)),
        *(("git -C x -c a=b push", PROMPT), ("env -S 'git push'", PROMPT), ("git -C push status", None)),
        *(("ls | xargs rm", FORBIDDEN), ("sudo rm a", FORBIDDEN), ("rm a > b", FORBIDDEN)),
    ],
)
def test_a_restriction_is_found_wherever_the_line_shows_it(
    script: str, decision: RuleDecision | None
) -> None:
    found = RULES.restriction(line(script))
    assert (found and found.decision) == decision


def test_a_line_that_cannot_be_searched_is_asked_about() -> None:
    found = RULES.restriction(line(": " + "x" * 300_000))
    assert found is not None
    assert found.decision is PROMPT
    assert PrefixRules([rule_for(("touch",))]).restriction(line(": " + "x" * 300_000)) is None


def test_a_file_is_read_as_it_is_written() -> None:
    found = parse_rules(TEXT)
    assert found.damage is None
    assert [rule.decision for rule in found.rules] == [ALLOW, PROMPT, FORBIDDEN]
    assert found.rules[1].pattern == (("git",), ("push", "fetch"))
    assert found.rules[2].justification == "use trash"


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        ("prefix_rule(pattern=[])", "pattern"),
        ("prefix_rule(pattern=[''])", "word"),
        ("prefix_rule(pattern=['a', []])", "word"),
        ("prefix_rule(pattern='a')", "pattern"),
        ("prefix_rule(['a'])", "named arguments"),
        ("prefix_rule(pattern=['a'], decision='yes')", "decision"),
        ("prefix_rule(pattern=['a'], decison='allow')", "decison"),
        ("prefix_rule(pattern=['a'], match=['b'])", "does not match"),
        ("prefix_rule(pattern=['a'], not_match=[['a', 'b']])", "matches"),
        ("prefix_rule(pattern=[open('/etc/passwd').read()])", "line 2"),
        ("prefix_rule(**{'pattern': ['a']})", "None"),
        ("import os", "prefix_rule"),
        ("prefix_rule(pattern=['a'", "line"),
        ("\0", "line"),
    ],
)
def test_a_damaged_file_allows_nothing_and_still_forbids(damage: str, told: str) -> None:
    text = 'prefix_rule(pattern=["rm"], decision="forbidden")\n'
    found = parse_rules(f"{text}{damage}\nprefix_rule(pattern=['touch'])\n")
    assert found.damage is not None
    assert told in found.damage
    assert [rule.decision for rule in found.rules] in ([FORBIDDEN], [])
    if damage != "\0":
        assert found.rules


@given(st.text())
def test_any_text_parses_as_rules_or_as_a_syntax_error(text: str) -> None:
    found = parse_rules(text)
    assert found.damage is None or all(rule.decision is not ALLOW for rule in found.rules)


@given(st.lists(st.text(st.characters(codec="utf-8"), min_size=1), min_size=1))
def test_a_written_rule_is_one_rule_with_these_words(words: list[str]) -> None:
    written = rule_line(words)
    if "\r" in "".join(words):
        assert "\r" not in written
    assert written.count("\n") == 1
    assert parse_rules(written).rules == (rule_for(words),)


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("touch a", "touch a"),
        ("/usr/bin/touch 'a b'", "/usr/bin/touch 'a b'"),
        ("cd src && mkdir x; ls", "mkdir x"),
        ("touch a; touch a", "touch a"),
    ],
)
def test_the_words_of_the_command_that_needs_approval_are_proposed(script: str, words: str) -> None:
    assert PrefixRules().proposal(line(script), trusted) == tuple(shlex.split(words))


@pytest.mark.parametrize(
    "script",
    [
        *("rm -rf a", "rm a", "python3 -c x", "bash x.sh", "sh -c 'touch a'", "env touch a", "xargs touch"),
        *("find . -name a -exec touch {} +", "git push", "npm run build", "make", "sed -i s/a/b/ f", "awk 1"),
        *(
            "sudo touch a",
            "./touch a",
            "mytool a",
            "touch a > b",
            "touch $(ls)",
            "touch a; mkdir b",
            "ls",
            "",
        ),
        *("touch " + "a" * 600, "touch " + "a " * 40, "mv a /dev/null", "touch 'a\nb'", "cat ~/.ssh/id"),
    ],
)
def test_nothing_is_proposed_for_what_destroys_or_can_run_other_programs(script: str) -> None:
    assert PrefixRules().proposal(line(script), trusted) is None


def test_nothing_is_proposed_that_would_not_save_the_question() -> None:
    assert PrefixRules().proposal(line("touch a"), lambda program: program != "touch") is None
    assert PrefixRules().proposal(line("touch a"), lambda program: program != "bash") is None


@given(st.lists(st.text(min_size=1), min_size=1, max_size=5))
def test_what_is_proposed_saves_the_question(words: list[str]) -> None:
    argv = ("touch", *words)
    proposed = PrefixRules().proposal(argv, trusted)
    if proposed is not None:
        rules = PrefixRules([rule_for(proposed)])
        assert is_known_safe((*argv, "more"), trusts=trusted, allowed=rules.allows)


def nested(depth: int, command: str) -> tuple[str, ...]:
    """Return a command inside `depth` nested shells."""
    argv: tuple[str, ...] = tuple(command.split())
    for _ in range(depth):
        argv = ("sh", "-c", shlex.join(argv))
    return argv


def test_a_command_is_found_as_deep_as_the_search_goes_and_asked_about_beyond() -> None:
    forbidden = PrefixRules([PrefixRule((("rm",),), FORBIDDEN)])
    for depth in range(MAX_DEPTH):
        found = forbidden.restriction(nested(depth, "rm a"))
        assert found is not None, depth
        assert found.decision is FORBIDDEN, depth
        assert forbidden.restriction(nested(depth, "touch a")) is None
    assert forbidden.restriction(nested(MAX_DEPTH, "rm a")) is UNCLEAR
    assert forbidden.restriction(("env",) * MAX_DEPTH + ("rm", "a")) is UNCLEAR
    found = forbidden.restriction(("env",) * (MAX_DEPTH - 1) + ("rm", "a"))
    assert found is not None
    assert found.decision is FORBIDDEN


def test_the_work_of_a_search_is_limited_by_words_and_by_characters_of_scripts() -> None:
    forbidden = PrefixRules([PrefixRule((("rm",),), FORBIDDEN)])
    longest = ("touch", *["x"] * (MAX_WORK - 11))
    assert forbidden.restriction(longest) is None
    assert forbidden.restriction((*longest, "x")) is UNCLEAR
    # A command costs ten plus its words, a script its characters and the work of parsing it.
    script = "touch " + "x" * (MAX_WORK - PARSING - (10 + 3) - 10 - (10 + 2) - len("touch "))
    assert forbidden.restriction(("sh", "-c", script)) is None
    assert forbidden.restriction(("sh", "-c", script + "x")) is UNCLEAR


def test_a_rule_with_several_words_fits_a_program_by_its_path() -> None:
    rules = PrefixRules([PrefixRule((("git",), ("push",)), FORBIDDEN)])
    assert rules.restriction(("/usr/bin/git", "push")) is not None
    assert rules.restriction(("/usr/bin/git", "fetch", "push")) is None


def test_what_follows_a_call_in_a_damaged_file_does_not_hide_its_rule() -> None:
    found = parse_rules('prefix_rule(pattern=[("a")], decision="forbidden") xx\nprefix_rule(')
    assert found.damage is not None
    assert len(found.rules) <= 1
    found = parse_rules('prefix_rule(pattern=["a"], decision=("forbidden")) xx\nprefix_rule(')
    assert [rule.decision for rule in found.rules] == [FORBIDDEN]


ALLOW_CP = 'prefix_rule(pattern=["cp"], decision="allow")\n'


def rules_file(home: Path, content: str | bytes = ALLOW_CP, name: str = exec_policy.DEFAULT) -> Path:
    (home / exec_policy.FOLDER).mkdir(exist_ok=True)
    path = home / exec_policy.FOLDER / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_without_files_there_are_no_rules(tmp_path: Path) -> None:
    assert exec_policy.read_rules(tmp_path) == exec_policy.read_rules(tmp_path / "missing")
    assert exec_policy.read_rules(tmp_path).problems == ()
    assert not (tmp_path / exec_policy.FOLDER).exists()


def test_a_rule_is_added_to_what_the_user_wrote(tmp_path: Path) -> None:
    path = rules_file(tmp_path, "# mine" + "\n" + ALLOW_CP.strip())
    exec_policy.append_rule(tmp_path, ("touch", 'a "b"'))
    exec_policy.append_rule(tmp_path, ("touch", 'a "b"'))
    assert path.read_text() == (
        "# mine\n" + ALLOW_CP + 'prefix_rule(pattern=["touch", "a \\"b\\""], decision="allow")\n'
    )
    assert len(exec_policy.read_rules(tmp_path).rules) == 2


def test_files_are_the_users_own(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        exec_policy.append_rule(tmp_path, ("touch",))
    finally:
        os.umask(before)
    assert (tmp_path / exec_policy.FOLDER).stat().st_mode & 0o777 == 0o700
    assert (tmp_path / exec_policy.FOLDER / exec_policy.DEFAULT).stat().st_mode & 0o777 == 0o600


def test_every_file_with_the_ending_is_read(tmp_path: Path) -> None:
    rules_file(tmp_path, 'prefix_rule(pattern=["a"], decision="forbidden")', "team.rules")
    rules_file(tmp_path)
    rules_file(tmp_path, "not rules", "notes.txt")
    found = exec_policy.read_rules(tmp_path)
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
    found = exec_policy.read_rules(tmp_path)
    assert found.rules == ()
    assert len(found.problems) == 1
    assert str(path) in found.problems[0]
    with pytest.raises((exec_policy.RulesUnusable, OSError)):
        exec_policy.append_rule(tmp_path, ("touch",))
    assert other.read_text() == ALLOW_CP


@pytest.mark.parametrize("mode", [None, 0o777])
def test_a_folder_that_is_a_link_or_open_to_all_is_not_used(tmp_path: Path, mode: int | None) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    rules_file(elsewhere)
    if mode is None:
        (tmp_path / exec_policy.FOLDER).symlink_to(elsewhere / exec_policy.FOLDER)
    else:
        rules_file(tmp_path).parent.chmod(mode)
    found = exec_policy.read_rules(tmp_path)
    assert (found.rules, len(found.problems)) == ((), 1)
    with pytest.raises((exec_policy.RulesUnusable, OSError)):
        exec_policy.append_rule(tmp_path, ("touch",))


def test_a_damaged_file_is_not_extended(tmp_path: Path) -> None:
    path = rules_file(tmp_path, ALLOW_CP + "xx(")
    found = exec_policy.read_rules(tmp_path)
    assert (found.rules, len(found.problems)) == ((), 1)
    with pytest.raises(exec_policy.RulesUnusable, match="damaged"):
        exec_policy.append_rule(tmp_path, ("touch",))
    assert path.read_text() == ALLOW_CP + "xx("


def test_two_servers_add_rules_at_once(tmp_path: Path) -> None:
    def add(server: int) -> None:
        for number in range(20):
            exec_policy.append_rule(tmp_path, ("touch", f"{server}-{number}"))

    servers = [threading.Thread(target=add, args=(server,)) for server in range(4)]
    for each in servers:
        each.start()
    for each in servers:
        each.join()
    found = exec_policy.read_rules(tmp_path)
    assert (len(found.rules), found.problems) == (80, ())


async def test_a_rule_that_cannot_be_stored_holds_in_its_conversation(tmp_path: Path) -> None:
    rules_file(tmp_path, "xx(")
    book = exec_policy.ExecPolicy(tmp_path)
    problem = await book.keep(("touch",))
    assert problem is not None
    assert "this thread only" in problem
    assert book.allows(("touch", "a"))
    assert not exec_policy.ExecPolicy(tmp_path).allows(("touch", "a"))


def test_a_problem_says_what_it_is(tmp_path: Path) -> None:
    path = rules_file(tmp_path)
    path.unlink()
    path.symlink_to(tmp_path / "other")
    assert exec_policy.read_rules(tmp_path).problems == (
        f"{path} is not read, so no rule in it holds: it is a link",
    )
    path.unlink()
    path.mkdir()
    (problem,) = exec_policy.read_rules(tmp_path).problems
    assert not problem.endswith("it is a link")
    path.rmdir()
    path.write_text(ALLOW_CP + "#" * 300_000)
    (problem,) = exec_policy.read_rules(tmp_path).problems
    assert not problem.endswith(("it is a link", "None", "it cannot be opened"))


def test_a_book_has_the_rules_of_the_home_and_says_what_is_wrong(tmp_path: Path) -> None:
    rules_file(tmp_path, 'prefix_rule(pattern=["rm"], decision="forbidden")\n' + ALLOW_CP)
    book = exec_policy.ExecPolicy(tmp_path)
    assert book.problems == ()
    assert book.allows(("cp", "a"))
    assert book.restriction(("rm", "a")) is not None
    assert book.restriction(("cp", "a")) is None
    rules_file(tmp_path, ALLOW_CP + "xx(")
    damaged = exec_policy.ExecPolicy(tmp_path)
    assert not damaged.allows(("cp", "a"))
    assert len(damaged.problems) == 1
    empty = exec_policy.ExecPolicy()
    assert (empty.problems, empty.allows(("cp", "a"))) == ((), False)


def test_a_rule_begins_a_line_of_its_own_and_is_added_once(tmp_path: Path) -> None:
    path = rules_file(tmp_path, ALLOW_CP.rstrip("\n"))
    exec_policy.append_rule(tmp_path, ("touch", "a"))
    exec_policy.append_rule(tmp_path, ("touch", "a"))
    exec_policy.append_rule(tmp_path, ("touch", "b"))
    assert path.read_text() == ALLOW_CP + rule_line(("touch", "a")) + rule_line(("touch", "b"))
    other = tmp_path / "other"
    other.mkdir()
    exec_policy.append_rule(other, ("touch",))
    (made,) = (other / exec_policy.FOLDER).iterdir()
    assert made.read_text() == rule_line(("touch",))


def test_a_file_may_be_as_large_as_the_limit_and_no_larger(tmp_path: Path) -> None:
    line = rule_line(("touch",))
    path = rules_file(tmp_path, ALLOW_CP + "#" * (exec_policy.MAX_BYTES - len(ALLOW_CP)))
    assert len(exec_policy.read_rules(tmp_path).rules) == 1
    path.write_text(path.read_text() + "#")
    assert exec_policy.read_rules(tmp_path).rules == ()
    path.write_text(ALLOW_CP + "#" * (exec_policy.MAX_BYTES - len(ALLOW_CP) - len(line) - 1) + "\n")
    exec_policy.append_rule(tmp_path, ("touch",))
    assert path.stat().st_size == exec_policy.MAX_BYTES
    with pytest.raises(exec_policy.RulesUnusable, match="larger than"):
        exec_policy.append_rule(tmp_path, ("cat",))
