"""Words to text and back."""

import re
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.core.shell.quote import NUL_COMMAND, join, split

WORDS = st.lists(
    st.text(alphabet=st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)
)
SHELL_WORDS = st.lists(st.text(alphabet="ab '\"\\$`!^~#{}=,\n\t;|&%é]", max_size=8))


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], ""),
        (["ls", "-la", "src/a.py"], "ls -la src/a.py"),
        ([""], "''"),
        (["a b"], "'a b'"),
        (["1,5p"], "'1,5p'"),
        (["--lines=5"], "'--lines=5'"),
        (["a:b@c+d_e.f/g-h]"], "a:b@c+d_e.f/g-h]"),
        (["it's"], '"it\'s"'),
        (["it'sX"], '"it\'sX"'),
        (["$HOME"], "'$HOME'"),
        (["a\\b"], '"a\\\\b"'),
        (["a\"b'c"], '"a\\"b\'c"'),
        (["a b'c$d"], "\"a b'c\"'$d'"),
        (["!'"], "'!'\"'\""),
        (["a^b"], "a'^b'"),
        (["é"], "'é'"),
        (["a\nb"], "'a\nb'"),
        (["~", "*", "{a}", "#x"], "'~' '*' '{a}' '#x'"),
        (["a\0b", "c"], NUL_COMMAND),
    ],
)
def test_words_are_quoted_where_shells_need_it(words: list[str], text: str) -> None:
    assert join(words) == text


@given(WORDS | SHELL_WORDS)
def test_what_was_joined_splits_into_the_same_words(words: list[str]) -> None:
    assert split(join(words)) == words
    assert shlex.split(join(words)) == words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        ("  a \t b\nc ", ["a", "b", "c"]),
        ("a'b c'\"d e\"f", ["ab cd ef"]),
        ("'' \"\"", ["", ""]),
        ("a\\ b \\'c", ["a b", "'c"]),
        ('"a\\"b\\$c\\d\\\ne"', ['a"b$c\\de']),
        ("a # b\nc", ["a", "c"]),
        ("a#b", ["a#b"]),
        ("a && b; c", ["a", "&&", "b;", "c"]),
        ("'a", None),
        ('"a', None),
        ('"a\\', None),
        ("a\\", None),
    ],
)
def test_splitting(text: str, words: list[str] | None) -> None:
    assert split(text) == words


# `shlex` keeps the newline of a continued line, and in double quotes the backslash before `$` and a backquote.
PLAIN_TEXTS = st.text(alphabet="ab'\"\\ \t\n$`", max_size=14).filter(
    lambda text: not re.search(r"\\[\n$`]", text)
)


@given(PLAIN_TEXTS)
def test_text_without_comments_splits_as_in_a_posix_shell(text: str) -> None:
    try:
        expected: list[str] | None = shlex.split(text)
    except ValueError:
        expected = None
    assert split(text) == expected
