"""The commands that a script shows, wherever they are."""

import pytest

from app_server.core.shell import nested_commands
from app_server.core.shell.nested_commands import FoundCommand, FoundScript, commands_in
from app_server.core.shell.syntax_tree import MAX_STAGES_BEFORE, parse, text_of


def found(script: str) -> FoundScript:
    result = commands_in(script)
    assert result is not None
    return result


def words(script: str) -> list[list[str]]:
    return [list(command.words) for command in found(script).commands]


def interpreter(script: str) -> FoundCommand:
    """The last command."""
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
