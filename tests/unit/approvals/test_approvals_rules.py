"""Rules by first words: what they allow and restrict, how files spell them, and which ones are proposed."""

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.core.approvals.prefix_rules import UNCLEAR, PrefixRules
from app_server.core.approvals.rules_text import PrefixRule, RuleDecision, parse_rules, rule_for, rule_line
from app_server.core.shell.reachable_commands import MAX_DEPTH, MAX_WORK, PARSING
from app_server.core.shell.safe_commands import is_known_safe

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
    """A command in so many shells, one in the other."""
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
    # A command counts ten more than its words, a script its characters and the work of parsing it.
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
