"""Matchers of hooks: they match as regular expressions do, and without backtracking."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.engine.hooks.matching import MOST_CHARACTERS, BadMatcher, name_pattern


@pytest.mark.parametrize("matcher", [None, "", "*"])
def test_no_matcher_is_for_all_names(matcher: str | None) -> None:
    pattern = name_pattern(matcher)
    assert pattern.text == matcher
    assert all(pattern.matches(name) for name in ("Bash", ""))


@pytest.mark.parametrize(
    ("matcher", "matching", "others"),
    [
        ("Bash", ("Bash",), ("bash", "BashOutput", "MyBash", "")),
        ("Edit|Write|apply_patch", ("Edit", "Write", "apply_patch"), ("MultiEdit", "Edit|Write")),
        ("mcp__.*", ("mcp__memory__create", "mcp__"), ("Bash", "mcp_")),
        ("mcp__.*__write.*", ("mcp__files__write_file",), ("mcp__files__read",)),
        ("mcp__[a-z]+__(read|list)_file", ("mcp__files__list_file",), ("mcp__7__read_file",)),
        ("^Bash$|^(?:Edit|Write)$", ("Bash", "Edit"), ("BashOutput", "MultiEdit")),
        ("Notebook.*", ("NotebookEdit", "OldNotebook"), ("Note",)),
        (r"mcp__a\.b__\w+", ("mcp__a.b__c",), ("mcp__aXb__c", "mcp__a.b__")),
        ("[^B].*", ("Edit",), ("B", "")),
        ("a?b*?c+", ("c", "abbcc"), ("ab",)),
    ],
)
def test_matchers_of_hook_files(matcher: str, matching: tuple[str, ...], others: tuple[str, ...]) -> None:
    pattern = name_pattern(matcher)
    assert [name for name in matching if not pattern.matches(name)] == []
    assert [name for name in others if pattern.matches(name)] == []


@pytest.mark.parametrize(
    ("matcher", "part"),
    [
        ("(", "not closed"),
        ("[a", "not closed"),
        ("a{2}", "`{`"),
        (r"(a)\1", "`\\1`"),
        ("(?=a)", "`=`"),
        ("(?i)a", "`i`"),
        ("+", "`+`"),
        ("a**", "`*`"),
        ("a\\", "backslash"),
        ("[z-a]", "range"),
        (")", "`)`"),
        ("(" * 50 + ")" * 50, "deeper"),
        ("." * (MOST_CHARACTERS + 1), "longer"),
    ],
)
def test_other_expressions_are_refused_with_the_reason(matcher: str, part: str) -> None:
    with pytest.raises(BadMatcher) as refused:
        name_pattern(matcher)
    assert part in str(refused.value)


PIECES = st.sampled_from(
    ["a", "b", "_", ".", ".*", "a+", "b?", "[ab]", "[^a]", "(a|b)", "(?:ab)*", "|", "^", "$", r"\.", r"\w"]
)


@given(st.lists(PIECES, min_size=1, max_size=8).map("".join), st.text("ab_.", max_size=12))
def test_a_matcher_matches_what_the_regular_expression_matches(matcher: str, name: str) -> None:
    expected = re.compile(matcher).search(name) is not None
    if re.fullmatch(r"[\w|]+", matcher):
        expected = name in matcher.split("|")
    assert name_pattern(matcher).matches(name) == expected


@given(st.text(max_size=40), st.text(max_size=20))
def test_any_text_is_a_matcher_or_refused(matcher: str, name: str) -> None:
    try:
        pattern = name_pattern(matcher)
    except BadMatcher:
        return
    assert pattern.matches(name) in (True, False)


def test_a_matcher_that_makes_others_backtrack_is_quick() -> None:
    steps = 0

    def counted(text: str) -> bool:
        nonlocal steps
        steps += 1
        return text == "a"

    pattern = name_pattern("(a*)*" * 20 + "b")
    for step in pattern.steps:
        if step.fits is not None and step.fits("a"):
            step.fits = counted
    assert not pattern.matches("a" * 500)
    assert steps <= 500 * len(pattern.steps)
