"""Words to text and back, scripts of plain commands, and arguments checked against allowed options."""

import re
import shlex
import shutil
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app_server.engine.approvals.shell import shell_script as script_module
from app_server.engine.approvals.shell.quote import NUL_COMMAND, join, split, word_set
from app_server.engine.approvals.shell.safe_commands import READERS, Options, operands_of, options
from app_server.engine.approvals.shell.safe_commands import is_known_safe as judge_safe
from app_server.engine.approvals.shell.shell_script import (
    MAX_CHARACTERS,
    MAX_COMMANDS,
    script_of,
    split_for_display,
    split_script,
)
from tests.engine.approvals.shell.shims import BUILTINS, Shims

is_known_safe = partial(judge_safe, trusts=lambda program: True)


@pytest.mark.parametrize("shell", ["bash", "zsh", "sh", "/bin/bash", "/usr/bin/zsh", "/bin/sh"])
@pytest.mark.parametrize("option", ["-c", "-lc"])
def test_a_known_shell_that_runs_one_script(shell: str, option: str) -> None:
    assert script_of([shell, option, "ls"]) == "ls"


@pytest.mark.parametrize(
    "argv",
    [
        ["bash", "-lc", "ls", "extra"],
        ["bash", "-ic", "ls"],
        ["bash", "--login", "-c", "ls"],
        ["bash", "script.sh"],
        ["bash", "-lc"],
        ["bash"],
        ["./bash", "-lc", "ls"],
        ["/tmp/bash", "-c", "ls"],
        ["fish", "-c", "ls"],
        ["ls"],
        [],
    ],
)
def test_anything_else_is_no_script(argv: list[str]) -> None:
    assert script_of(argv) is None


@pytest.mark.parametrize(
    ("script", "commands"),
    [
        ("ls", [["ls"]]),
        ("ls   -la    ", [["ls", "-la"]]),
        ("\tls\t-l\n", [["ls", "-l"]]),
        (
            "ls && pwd || cat f; wc -l | head -3",
            [["ls"], ["pwd"], ["cat", "f"], ["wc", "-l"], ["head", "-3"]],
        ),
        ("ls;pwd|wc", [["ls"], ["pwd"], ["wc"]]),
        ("echo 'a b' \"c d\" '' \"\"", [["echo", "a b", "c d", "", ""]]),
        ("grep --include='*.py' \"x\"y'z' .", [["grep", "--include=*.py", "xyz", "."]]),
        ('find . -name zzz "-del"ete', [["find", ".", "-name", "zzz", "-delete"]]),
        ("'ls' src", [["ls", "src"]]),
        ("find . '(' -name a ')' ! -name b", [["find", ".", "(", "-name", "a", ")", "!", "-name", "b"]]),
        ("rg 'a|b;c&&d $x `y` \\z' .", [["rg", "a|b;c&&d $x `y` \\z", "."]]),
        ("head -n 5 é.txt", [["head", "-n", "5", "é.txt"]]),
        ("ls a=b c:d e%f g@h i,j k+l", [["ls", "a=b", "c:d", "e%f", "g@h", "i,j", "k+l"]]),
    ],
)
def test_plain_commands_are_taken_apart(script: str, commands: list[list[str]]) -> None:
    assert split_script(script) == tuple(map(tuple, commands))


OPAQUE = [
    "",
    "   ",
    # expansions, globs, escapes
    "echo $HOME", "echo ${HOME}", 'echo "$HOME"', "echo $((1+1))", "echo $(id)", "echo `id`", 'echo "a `id`"',
    'echo "${x@P}"', "echo $'a'", 'echo $"a"', "ls *.py", "ls ?", "ls [ab]", "ls ~", "ls {a,b}", "echo a\\ b",
    "find . \\-delete", "find . -del\\ete", "rg \\--pre=cat foo", "ls \\; id", 'echo "a\\"b"',
    "ls ^x", "ls a#b", "ls =ls",
    # redirections and heredocs
    "ls > out", "ls >> out", "ls 2>&1", "cat < f", "ls &> out", "ls >| out", "cat <<EOF\nx\nEOF", "cat <<< x",
    "ls <(id)",
    # operators that are not plain, or without a right side
    "ls &", "ls & pwd", "ls |& wc", "&& ls", "ls &&", "ls | | wc", "ls;", "ls ;; pwd", "; ls",
    # everything that is more than a command
    "(ls)", "{ ls; }", "! ls", "if true; then ls; fi", "for i in 1; do ls; done", "while false; do ls; done",
    "f() { ls; }", "[[ -f f ]]", "FOO=1 ls", "PATH=.:/usr/bin ls", "A=1", "export A=1", "declare -x A", "unset A",
    "case x in x) ls;; esac", "((1))", "ls # comment", "# comment",
    # lines, control characters, blanks that only some programs take for blanks
    "ls\npwd", "ls\nrm f", "ls\r\npwd", "ls\rpwd", "ls \\\n src", "ls \x1b[2J", "ls\x00", "ls\u00a0x", "ls\u2028pwd",
    "ls\x85x", "ls \u202ex", "ls \x0bx", "echo 'a\nb'", "ls\ud800",
    # texts that are no script
    "echo 'unterminated", 'echo "unterminated', "ls )", "ls }; }", "ls (a)",
]  # fmt: skip


@pytest.mark.parametrize("script", OPAQUE)
def test_what_is_not_plain_is_opaque(script: str) -> None:
    assert split_script(script) is None
    assert not is_known_safe(["bash", "-lc", script])


@pytest.mark.parametrize(
    ("script", "commands"),
    [
        ("ls -l | wc; pwd", [["ls", "-l"], ["wc"], ["pwd"]]),
        ("a && b || c\nd", [["a"], ["b"], ["c"], ["d"]]),
        ("ls *.py a\\ b ~", [["ls", "*.py", "a\\ b", "~"]]),
        ("ls 'a b' \"c d\" 5", [["ls", "a b", "c d", "5"]]),
        ("", []),
        ("ls \ud800", [["ls", "?"]]),
        ('ls ""', None),
        ('ls "$X"', None),
        ("ls $X", None),
        ("'ls'", None),
        ("$X", None),
        ("ls a'b'", None),
        ("ls &", None),
        ("ls > f", None),
        ("(ls)", None),
        ("ls 'a", None),
        ("if a; then b; fi", None),
    ],
)
def test_what_is_displayed_is_as_it_was_written(script: str, commands: list[list[str]] | None) -> None:
    assert split_for_display(script) == (None if commands is None else tuple(map(tuple, commands)))


def test_very_long_scripts_are_not_displayed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script_module, "MAX_DISPLAY_CHARACTERS", 20)
    assert split_for_display("echo " + "a" * 15) is not None
    assert split_for_display("echo " + "a" * 16) is None


def test_long_scripts_are_opaque() -> None:
    assert split_script("echo " + "a" * (MAX_CHARACTERS - 5)) is not None
    assert split_script("echo " + "a" * (MAX_CHARACTERS - 4)) is None
    assert split_script(" && ".join(["true"] * MAX_COMMANDS)) is not None
    assert split_script(" && ".join(["true"] * (MAX_COMMANDS + 1))) is None


@pytest.mark.parametrize("unit", ["a && ", "(", "$(", "a=(", "<", "<<a ", '"$(', "{ ", "[[ ", "if "])
def test_hostile_scripts_end_without_an_answer(unit: str) -> None:
    script = (unit * MAX_CHARACTERS)[:MAX_CHARACTERS]
    assert split_script(script) is None
    assert split_for_display(script) is None


WORDS = st.sampled_from(
    [
        "a",
        "-l",
        "-n",
        "5",
        "src/a.py",
        "--include=",
        "x=y",
        "é",
        "!",
        "%1",
        "a:b",
        "@",
        "+",
        ",",
        ".",
        "-",
        "--",
    ]
)
TEXTS = st.text(alphabet="ab -*$`\\!~#{}[]()<>|&;\"='é?^", max_size=6)
QUOTED = TEXTS.map(lambda text: "'" + text.replace("'", "") + "'") | TEXTS.map(
    lambda text: '"' + "".join(c for c in text if c not in '"\\$`') + '"'
)
PARTS = st.lists(WORDS | QUOTED, min_size=1, max_size=3).map("".join)
PROGRAMS = (*sorted(READERS), "cd", "git", "rm", "xargs", "env", "foo")
COMMANDS = st.tuples(st.sampled_from(PROGRAMS), st.lists(PARTS, max_size=3)).map(
    lambda c: " ".join([c[0], *c[1]])
)
JOINTS = st.sampled_from([" && ", " || ", "; ", " | ", "&&", "|", ";", "  ||\t"])
ODDITIES = st.sampled_from(
    [
        *"'\"\\$`*?[]{}()<>|&;#~^!= \t\n\r\x0b\x00\u00a0\u2003",
        "$(foo)",
        "\\\n",
        "{foo,a}",
        "$'a'",
        "\n# ",
        "=",
        "${IFS}",
    ]
)


@st.composite
def scripts(draw: st.DrawFn) -> str:
    """Draw mostly plain scripts; some with one unusual part."""
    script = draw(COMMANDS)
    for _ in range(draw(st.integers(0, 3))):
        script += draw(JOINTS) + draw(COMMANDS)
    if draw(st.booleans()):
        at = draw(st.integers(0, len(script)))
        script = script[:at] + draw(ODDITIES) + script[at:]
    return script


SHELLS = [shell for shell in ("bash", "dash", "zsh") if shutil.which(shell)]


@pytest.fixture(scope="module")
def shims(tmp_path_factory: pytest.TempPathFactory) -> Shims:
    return Shims(tmp_path_factory.mktemp("shims"), PROGRAMS)


@pytest.mark.parametrize("shell", SHELLS)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(script=scripts())
def test_shells_execute_what_the_splitter_reports(shell: str, script: str, shims: Shims) -> None:
    commands = split_script(script)
    if commands is None:
        assert not is_known_safe(["bash", "-lc", script])
        return
    seen = shims.calls(str(shutil.which(shell)), script)
    assert seen <= set(commands)
    # Missing programs are not called, and builtins of other shells are not recorded.
    seen_programs = {*PROGRAMS} if shell == "bash" else {*PROGRAMS} - {*BUILTINS, "which"}  # zsh
    if seen_programs.issuperset(words[0] for words in commands):
        assert seen == set(commands)
    if is_known_safe(["bash", "-lc", script]):
        assert {words[0] for words in seen} <= {*READERS, "cd"}


def test_the_shims_see_what_shells_execute(shims: Shims, tmp_path: Path) -> None:
    """The test above can fail: expansions reach the programs, and both runs together reach every command."""
    seen = shims.calls(str(shutil.which("bash")), "ls {a,b} && foo \"x  y\" || rm 'f' | git; echo $'t\\x41'")
    assert seen == {("ls", "a", "b"), ("foo", "x  y"), ("rm", "f"), ("git",), ("echo", "tA")}


ANY_WORDS = st.lists(
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


@given(ANY_WORDS | SHELL_WORDS)
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


ALLOWED = Options("ab", "nx", frozenset({"all", "width=", "color?"}), numeric=True, most=2)


def test_a_table_row_is_its_parts() -> None:
    assert options("ab", "nx", "all\n  width= color?", numeric=True, most=2) == ALLOWED
    assert options() == Options()
    assert word_set("a b\n  c a") == {"a", "b", "c"}


@pytest.mark.parametrize(
    ("words", "operands"),
    [
        ("", []),
        ("f g", ["f", "g"]),
        ("-", ["-"]),
        ("-a f -b", ["f"]),
        ("-ab f", ["f"]),
        ("-5 f", ["f"]),
        ("-n 3 f", ["f"]),
        ("-n3 f", ["f"]),
        ("-n -3 f", ["f"]),
        ("-n +3 f", ["f"]),
        ("-an 3 f", ["f"]),
        ("-nb f", ["f"]),
        ("-n - f", None),
        ("-n -a f", None),
        ("-n -3a f", None),
        ("-n", None),
        ("-c", None),
        ("-ac f", None),
        ("-5a", None),
        ("-a5", None),
        ("--all f", ["f"]),
        ("--all=x f", None),
        ("--al f", None),
        ("--width 3 f", ["f"]),
        ("--width=3 f", ["f"]),
        ("--width= f", ["f"]),
        ("--width -3 f", ["f"]),
        ("--width --all", None),
        ("--width", None),
        ("--color f", ["f"]),
        ("--color=auto f", ["f"]),
        ("--color= f", ["f"]),
        ("--colour f", None),
        ("-- -c --all", ["-c", "--all"]),
        ("f -- g", ["f", "g"]),
        ("-a -- -- g", ["--", "g"]),
        ("f g h", None),
        ("f -- g h", None),
    ],
)
def test_only_listed_options_are_accepted(words: str, operands: list[str] | None) -> None:
    assert operands_of(words.split(), ALLOWED) == operands


def test_numbers_are_options_only_where_the_program_takes_them() -> None:
    assert operands_of(["-5"], Options()) is None
    assert operands_of(["-5"], Options(valued="5")) is None, "without its value"


def test_any_number_of_operands_where_there_is_no_limit() -> None:
    assert operands_of(["f"] * 50, Options()) == ["f"] * 50
    assert operands_of(["f"], Options(most=0)) is None
    assert operands_of([], Options(most=0)) == []
