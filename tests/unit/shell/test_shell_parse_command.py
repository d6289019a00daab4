"""What a command line seems to do, as it is shown. Nearly all rows are how codex answers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.core.shell.summaries import parse_command
from protocol.events.commands import (
    ListFilesCommand,
    ParsedCommand,
    ReadCommand,
    SearchCommand,
    UnknownCommand,
)


def read(cmd: str, path: str, name: str | None = None) -> ParsedCommand:
    return ReadCommand(cmd=cmd, name=name or path, path=path)


def listing(cmd: str, path: str | None = None) -> ParsedCommand:
    return ListFilesCommand(cmd=cmd, path=path)


def search(cmd: str, query: str | None = None, path: str | None = None) -> ParsedCommand:
    return SearchCommand(cmd=cmd, query=query, path=path)


def unknown(cmd: str) -> ParsedCommand:
    return UnknownCommand(cmd=cmd)


ONE = [
    ("ls", listing("ls")),
    ("ls   -la    src", listing("ls -la src", "src")),
    ("ls -I foo --color auto a/b/dist/", listing("ls -I foo --color auto a/b/dist/", "b")),
    ("ls build/node_modules/src", listing("ls build/node_modules/src", "build/node_modules/src")),
    ("ls *.py", listing("ls '*.py'", "*.py")),
    ("ls \\\n src", listing("ls '' src", "src")),
    ("cat a/b.txt", read("cat a/b.txt", "a/b.txt", "b.txt")),
    ("cat -- -x", read("cat -- -x", "-x")),
    ("cat -", read("cat -", "-")),
    ("cat 'a b'", read("cat 'a b'", "a b")),
    ("cat a;", read("cat 'a;'", "a")),
    ("cat a\\|b", read("cat 'a|b'", "a\\|b", "|b")),
    ("cat -n a", unknown("cat -n a")),
    ("cat a b", unknown("cat a b")),
    ("cat", unknown("cat")),
    ("head -n 5 a", read("head -n 5 a", "a")),
    ("head -n5 -q a b", read("head -n5 -q a b", "a")),
    ("head -5 a", unknown("head -5 a")),
    ("head -n +5 a", unknown("head -n +5 a")),
    ("tail -n +5 a", read("tail -n +5 a", "a")),
    ("tail -f a", unknown("tail -f a")),
    ("nl -ba -w 3 a", read("nl -ba -w 3 a", "a")),
    ("sed -n '1,20p' src/a.py", read("sed -n '1,20p' src/a.py", "src/a.py", "a.py")),
    ("sed -n 5p f g", read("sed -n 5p f g", "f")),
    ("sed -n '1,$p' f", unknown("sed -n '1,$p' f")),
    ("sed s/a/b/ f", unknown("sed s/a/b/ f")),
    ("rg foo", search("rg foo", "foo")),
    ("rg -n 'a|b' src/x/y.py", search("rg -n 'a|b' src/x/y.py", "a|b", "y.py")),
    ("rg --files src", search("rg --files src", None, "src")),
    ('grep -R "a b" .', search("grep -R 'a b' .", "a b", ".")),
    ("grep -A 3 foo src", search("grep -A 3 foo src", "3", "foo")),
    ("fd -t f main src", search("fd -t f main src", "main", "src")),
    ("fd a/b", search("fd a/b", None, "b")),
    ("find . -type f -name '*.py'", search("find . -type f -name '*.py'", "*.py", ".")),
    ("find src ! -path x", search("find src '!' -path x", "x", "src")),
    ("find -L ! src -iname x", search("find -L '!' src -iname x", "x", "src")),
    ("find ! src", search("find '!' src", None, "src")),
    ("ls --color=auto src", listing("ls '--color=auto' src", "src")),
    ("sed -n 1,2,3p f", unknown("sed -n 1,2,3p f")),
    ("cat a | uniq", read("cat a", "a")),
    ("printf x && cat a", read("cat a", "a")),
    ("cat a | column", read("cat a", "a")),
    ("cat a | cut -f 1 | tr a b | tee", read("cat a", "a")),
    ("awk '{print}' && cat a", read("cat a", "a")),
    ("true", unknown("true")),
    ("ls && true", listing("ls")),
    ("git status", unknown("git status")),
    ("/bin/ls src", unknown("/bin/ls src")),
    ("echo hi > x.txt", unknown("echo hi > x.txt")),
    ("cat a 2>/dev/null", unknown("cat a 2>/dev/null")),
    ("'ls' src", unknown("'ls' src")),
    ('echo ""', unknown('echo ""')),
    ("rg 'it'\"'\"'s'", unknown("rg 'it'\"'\"'s'")),
    ("FOO=1 cat a", unknown("FOO=1 cat a")),
    ("wc   -l", unknown("wc   -l")),
    ("sleep 1 &", unknown("sleep 1 &")),
    ("cat 'unterminated", unknown("cat 'unterminated")),
    ("", unknown("")),
    # one thing remains
    ("cat a | head -20 | wc -l", read("cat a", "a")),
    ("cat a | sed -n 1,5p", read("cat a | sed -n 1,5p", "a")),
    ("sed -n 1,5p a | nl -ba", read("sed -n 1,5p a | nl -ba", "a")),
    ("ls | sort | xargs cat", listing("ls")),
    ("rg foo | sed -n 1,5p", search("rg foo", "foo")),
    ("echo start && ls", listing("ls")),
    ("rm x || true", unknown("rm x")),
    ("nl -ba && cat b", read("cat b", "b")),
    ("cd src && cat a", read("cat a", "src/a", "a")),
    ("cd a && cd ../b; cat /c", read("cat /c", "/c", "c")),
    ("cd a && cd ../b; cat c", read("cat c", "a/../b/c", "c")),
    ("cd src && pytest -q", unknown("pytest -q")),
    ("cat a && cat a", read("cat a", "a")),
    ("wc -l && sort", unknown("wc -l && sort")),
]


@pytest.mark.parametrize(("script", "expected"), ONE)
def test_scripts_that_do_one_thing(script: str, expected: ParsedCommand) -> None:
    for shell, option in (("bash", "-lc"), ("/usr/bin/zsh", "-c")):
        assert parse_command([shell, option, script]) == (expected,)


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("cd src", []),
        ("cat a | wc -l && ls", [read("cat a", "a"), listing("ls")]),
        ("cat a && cat b; pwd", [read("cat a", "a"), read("cat b", "b"), unknown("pwd")]),
        ("ls\nrm f", [listing("ls"), unknown("rm f")]),
        ("cat a | head -n 5", [read("cat a", "a"), unknown("head -n 5")]),
        ("cat a && echo done", [read("cat a", "a"), unknown("echo done")]),
        ("rg --files | rg foo", [search("rg --files"), search("rg foo", "foo")]),
    ],
)
def test_scripts_that_do_several_things(script: str, expected: list[ParsedCommand]) -> None:
    assert parse_command(["bash", "-lc", script]) == tuple(expected)


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ([], [unknown("")]),
        (["ls", "a b"], [listing("ls 'a b'", "a b")]),
        (["find", "(", ")", "src"], [search("find '(' ')' src", None, "src")]),
        (["touch", "made.txt"], [unknown("touch made.txt")]),
        (["sed", "-n", "1,2p", "a.txt"], [read("sed -n '1,2p' a.txt", "a.txt")]),
        (["cd", "src", "&&", "cat", "a"], [read("cat a", "src/a", "a")]),
        (["cat", "a", "|", "head"], [read("cat a", "a"), unknown("head")]),
        (["yes", "|", "rm", "x"], [unknown("rm x")]),
        (["y", "|", "rm", "x"], [unknown("rm x")]),
        (["no", "|", "rm", "x"], [unknown("rm x")]),
        (["n", "|", "rm", "x"], [unknown("rm x")]),
        (["yes"], [unknown("yes")]),
        (["yes", "rm"], [unknown("yes rm")]),
        (["echo", "hi", "&&", "ls"], [listing("ls")]),
        (["sh", "-c", "cat a"], [unknown("sh -c 'cat a'")]),
        (["bash", "-ic", "ls"], [unknown("bash -ic ls")]),
        (["bash", "-lc", "ls", "x"], [unknown("bash -lc ls x")]),
        (["echo", "a\0b"], [unknown("<command included NUL byte>")]),
    ],
)
def test_argument_vectors(argv: list[str], expected: list[ParsedCommand]) -> None:
    assert parse_command(argv) == tuple(expected)


@given(st.lists(st.text(alphabet="lscat -n&|;'\"\\$(){}<>#\n\0é/", max_size=20), max_size=4))
def test_any_words_get_an_answer(words: list[str]) -> None:
    parse_command(words)
    for shown in parse_command(["bash", "-lc", *words[:1]]):
        assert isinstance(shown.cmd, str)
