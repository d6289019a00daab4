"""The commands in a script, at any depth, and its apparent purpose."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.engine.approvals.shell import nested_commands
from app_server.engine.approvals.shell.nested_commands import FoundCommand, FoundScript, commands_in
from app_server.engine.approvals.shell.summaries import parse_command
from app_server.engine.approvals.shell.syntax_trees import MAX_STAGES_BEFORE, parse, text_of
from app_server_protocol.engine.item_values import (
    ListFilesCommand,
    ParsedCommand,
    ReadCommand,
    SearchCommand,
    UnknownCommand,
)


def found(script: str) -> FoundScript:
    result = commands_in(script)
    assert result is not None
    return result


def words(script: str) -> list[list[str]]:
    return [list(command.words) for command in found(script).commands]


def interpreter(script: str) -> FoundCommand:
    """Return the last command."""
    return found(script).commands[-1]


@pytest.mark.parametrize(
    ("script", "commands"),
    [
        ("", []),
        ("ls -l", [["ls", "-l"]]),
        ("a; b && c | d", [["a"], ["b"], ["c"], ["d"]]),
        ("if a; then b; else c; fi", [["a"], ["b"], ["c"]]),
        ("f() { a; }; f", [["a"], ["f"]]),
        ("a $(b c)", [["a", "$(b c)"], ["b", "c"]]),
        ("a <(b)", [["a", "<(b)"], ["b"]]),
        ("X=1 a b", [["a", "b"]]),
        ("> f a b", [["a", "b"]]),
        ("a <<< text b", [["a", "b"]]),
    ],
)
def test_commands_are_found_in_their_order(script: str, commands: list[list[str]]) -> None:
    assert words(script) == commands


@pytest.mark.parametrize(
    ("script", "argv"),
    [
        ("a 'b c' \"d e\"", ["a", "b c", "d e"]),
        ("a b'c'\"d\"e", ["a", "bcde"]),
        ("a b\\ c \\d", ["a", "b c", "d"]),
        ("a $'x\\ty'", ["a", "x\ty"]),
        ("a $'\\x41'", ["a", "A"]),
        ('a $"x"', ["a", "x"]),
        ('a "x\\$y\\\\"', ["a", "x$y\\"]),
        ("a {b,c}", ["a", "b", "c"]),
        ("a {b,,c}", ["a", "b", "c"]),
        ("a x{b,c}", ["a", "xb", "xc"]),
        ("a {b}", ["a", "{b}"]),
        ("a ''", ["a", ""]),
        ("a $X", ["a", "$X"]),
        ("a$IFS-b", ["a", "-b"]),
        ("a ${IFS}b", ["a", "b"]),
    ],
)
def test_words_are_expanded_as_a_shell_most_likely_does(script: str, argv: list[str]) -> None:
    assert words(script) == [argv]


@pytest.mark.parametrize(
    ("script", "argv"),
    [
        ("a > f b", ["a", "b"]),
        ("a 2>/dev/null -b 'c d'", ["a", "-b", "c d"]),
        ("a b > f c 2>&1 d < g e", ["a", "b", "c", "d", "e"]),
        ("x | a > f b", ["a", "b"]),
        ("x && a > f b", ["a", "b"]),
        ("! a > f b", ["a", "b"]),
        ("a <<EOF b\nx\nEOF", ["a", "b"]),
        ("a <<EOF > f b\nx\nEOF", ["a", "b"]),
        ("a > f b <<EOF c\nx\nEOF", ["a", "b", "c"]),
    ],
)
def test_words_behind_a_redirection_are_arguments(script: str, argv: list[str]) -> None:
    assert argv in words(script)
    assert ["x", *argv[1:]] not in words(script), "of the last command alone"


def test_the_variables_of_a_script_are_inserted() -> None:
    assert words("X='b  c'; a $X ${X} \"$X\" '$X'") == [["a", "b", "c", "b", "c", "b  c", "$X"]]
    assert words("X=b; a x${X}y") == [["a", "xby"]]
    assert words("X={b,c}; a $X") == [["a", "b", "c"]]
    assert words("Y=$X; X=b; a $Y") == [["a", "$X"]], "one step, so it always ends"
    assert words("X=; a $X b") == [["a", "$X", "b"]]


@pytest.mark.parametrize(
    ("script", "targets"),
    [
        ("a > f", ["f"]),
        ("a >> 'f g'", ["f g"]),
        ("a &> f", ["f"]),
        ("a >| f", ["f"]),
        ("a 2> e > f", ["e", "f"]),
        ("a < f", []),
        ("a > f b", ["f"]),
        ("X=f; a > $X", ["f"]),
        ("a | b > f", ["f"]),
        ("a <<EOF > f\nx\nEOF", ["f"]),
    ],
)
def test_files_that_are_written_are_found(script: str, targets: list[str]) -> None:
    assert list(found(script).written) == targets


def test_a_script_with_a_syntax_error_is_not_clean() -> None:
    assert found("a; b").is_clean
    assert not found("a 'b").is_clean


@pytest.mark.parametrize(
    ("script", "feeders"),
    [
        ("bash f", []),
        ("a b | bash", [("a", "b")]),
        ("a | b | bash", [("b",), ("a",)]),
        ("(a; b) | bash", [("a",), ("b",)]),
        ("bash <(a b)", [("a", "b")]),
        ('bash -c "$(a b)"', [("a", "b")]),
        ("a; b | /bin/sh", [("b",)]),
        ("a | bash > f", [("a",)]),
        ("a && bash", []),
        ("a | env bash", [("a",)]),
        ("cat <<EOF | a b | bash > f\nx\nEOF", [("a", "b")]),
    ],
)
def test_what_feeds_an_interpreter_is_known(script: str, feeders: list[tuple[str, ...]]) -> None:
    fed = next(c for c in found(script).commands if any(w.endswith(("bash", "/sh")) for w in c.words))
    assert list(fed.fed_by) == feeders


def test_only_interpreters_are_fed() -> None:
    assert found("a | cat <<< x").commands[-1] == FoundCommand(("cat",))


def test_only_the_nearest_stages_of_a_pipeline_are_looked_at() -> None:
    stages = [f"a{n}" for n in range(MAX_STAGES_BEFORE + 3)]
    fed = interpreter(" | ".join([*stages, "bash"])).fed_by
    assert fed == tuple((stage,) for stage in reversed(stages[3:]))


@pytest.mark.parametrize(
    ("script", "text"),
    [
        ("bash <<< 'a b'", "a b"),
        ("bash <<< a <<< b", "a\nb"),
        ("bash <<EOF\na\nb\nEOF", "a\nb\n"),
        ("bash -s <<'EOF' > f\na\nEOF", "a\n"),
        ("cat <<EOF | bash\na\nEOF", "a\n"),
        ("cat <<EOF | bash > f\na\nEOF", "a\n"),
        ("cd x && bash <<EOF\na\nEOF", "a\n"),
        ("true | bash <<EOF\na\nEOF", "a\n"),
        ("bash f; cat <<EOF\na\nEOF", ""),
        ("bash f && cat <<EOF\na\nEOF", ""),
        ("bash f", ""),
    ],
)
def test_text_that_is_fed_to_an_interpreter_is_known(script: str, text: str) -> None:
    fed = next(command for command in found(script).commands if command.words[0] == "bash")
    assert fed.fed_text.strip() == text.strip()


def test_a_script_with_too_many_parts_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    root = parse(b"a b")
    assert root is not None
    nodes, pending = 0, [root]
    while pending:
        nodes += 1
        pending.extend(pending.pop().children)
    monkeypatch.setattr(nested_commands, "MAX_NODES", nodes + 1)
    assert words("a b") == [["a", "b"]]
    monkeypatch.setattr(nested_commands, "MAX_NODES", nodes)
    assert commands_in("a b") is None


# --- syntax trees
def test_parsing_stops_at_its_deadline_and_the_next_script_is_parsed() -> None:
    slow = b"$(" * 20_000
    ticks = iter(range(10_000_000))
    assert parse(slow, lambda: float(next(ticks)), seconds=0.5) is None
    root = parse(b"a b", lambda: 0.0)
    assert root is not None
    assert not root.has_error
    assert text_of(root, b"a b") == "a b"


def test_bytes_that_are_no_text_are_replaced() -> None:
    source = b"a \xff"
    root = parse(source)
    assert root is not None
    assert text_of(root, source) == "a �"


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
