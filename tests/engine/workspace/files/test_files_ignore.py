"""Ignored files, compared with git itself, and blocks of lines by indentation."""

import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app_server.engine.workspace.files.ignore import RuleSet, parse_rules
from app_server.engine.workspace.files.model_reads import Lines, window

PATHS = (
    "a",
    "b.c",
    "a/b",
    "a/b.c",
    "a/b/c",
    "ab/a",
    "ab/b.c",
    "a/ab/b/c.d",
    "c/ab",
    "-",
    "a/]",
    "A/b",
    " /a ",
)


def ours(folder: Path, path: str) -> bool:
    """Walk down to `path` as a search does, which enters no ignored folder; return whether the path is ignored."""
    rules: RuleSet | None = None
    at = ""
    parts = path.split("/")
    for number, name in enumerate(parts):
        file = folder / at / ".gitignore"
        if file.is_file():
            found = parse_rules(file.read_bytes().decode())
            rules = RuleSet(found, rules, base=at) if found else rules
        if rules is not None and rules.hides(at, name, number < len(parts) - 1):
            return True
        at += name + "/"
    return False


def gits(folder: Path) -> set[str]:
    listing = subprocess.run(
        ["git", "ls-files", "--others", "--exclude-standard", "-z"],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin:/usr/local/bin", "GIT_CONFIG_GLOBAL": "/dev/null"},
        check=True,
        capture_output=True,
    )
    shown = {name for name in listing.stdout.decode().split("\0") if name}
    return {path for path in PATHS if path not in shown}


def compare(ignore_files: dict[str, str]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run(["git", "init", "-q", "."], cwd=folder, check=True)
        for path in PATHS:
            if not any((folder / path).is_relative_to(folder / other / "x") for other in PATHS):
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
        for path in PATHS:
            if not (folder / path).is_dir():
                (folder / path).write_text("")
        for place, text in ignore_files.items():
            (folder / place / ".gitignore").write_bytes(text.encode())
        files = {path for path in PATHS if (folder / path).is_file()}
        assert {path for path in files if ours(folder, path)} == gits(folder) & files, ignore_files


@pytest.mark.parametrize(
    "rules",
    [
        "a",
        "a/",
        "/a",
        "a/b",
        "*.c",
        "*.c\n!b.c",
        "a/*\n!a/b",
        "**/b",
        "a/**",
        "a/**/c",
        "a/**b",
        "**",
        "*",
        "*\n!*/\n!b.c",
        "#a\n\\#\n",
        "a \n",
        "a\\ \n",
        " \n",
        "[ab]\n",
        "[!a]*",
        "[^a]*",
        "[]-]",
        "[a-",
        "[[:alpha:]]",
        "[[:nonsense:]]",
        "[b-a]",
        "?",
        "a?b",
        "a\\/b",
        "b.c\\",
        "\\b.c",
        "*[.]c",
        "\ufeffa",
        "a\r\n",
        "!a",
        "a/\n!a/b",
        "ab\n!ab/",
        "*b",
        "*/b.c",
        "/*",
        "/**/c",
        "a//b",
        "a/b/",
        "./a",
        "**a",
        "***/b",
        "[a/]b",
        "a[/]b",
        "A",
        "[[:upper:]]",
        " ",
        "\\ ",
        "/ /",
        "[--/]",
        "\\*",
        "/",
        "//",
        "!",
    ],
)
def test_rules_mean_what_they_mean_to_git(rules: str) -> None:
    compare({"": rules})


def test_a_deeper_file_goes_before_one_above_it() -> None:
    compare({"": "*.c\n", "a": "!b.c\nb\n"})
    compare({"": "b\n", "a": "!b\n!/b/\n/ab/b\n"})


pieces = st.sampled_from(
    ["a", "b", "c", "*", "**", "?", "/", "!", "\\", "[", "]", "^", "-", ".", " ", "[ab]", "#"]
)
rule = st.lists(pieces, min_size=1, max_size=6).map("".join)


@given(st.lists(rule, min_size=1, max_size=3).map("\n".join), st.lists(rule, max_size=2).map("\n".join))
@settings(max_examples=50, deadline=None)
def test_any_rules_mean_what_they_mean_to_git(rules: str, deeper: str) -> None:
    compare({"": rules, "a": deeper})


@pytest.mark.parametrize(
    "pattern", ["*a" * 100 + "*b", "/" + "*a" * 100 + "*b", "**/a/" * 100 + "b", "**/*a*/" * 50 + "b"]
)
@pytest.mark.parametrize("path", ["a" * 250, "a/" * 500 + "a", "ca/" * 500 + "c"])
def test_a_pattern_of_many_stars_takes_no_longer_than_others(pattern: str, path: str) -> None:
    """Without the atomic groups this takes longer than anybody lives."""
    folder, slash, name = path.rpartition("/")
    assert not RuleSet(parse_rules(pattern), None).hides(folder + slash, name, True)


PYTHON = """\
import os

def top():
    return 1

class A:
    x = 1

    # about one
    @cached
    def one(self):
        if True:
            go()
# put off
            come()
        return 1

    def two(self):
        return 2
""".splitlines()

C = """\
int a;
/* the
 * first */
int f(int a,
      int b)
{
\tif (a) {
\t\treturn 1;
\t}
\treturn
\t*b;
}
int g;
""".splitlines()


def block(
    lines: list[str], anchor: str, *, levels: int = 0, siblings: bool = False, header: bool = False
) -> tuple[str, str]:
    """Return the first and the last line of the block."""
    (place,) = [n for n, line in enumerate(lines) if line.strip() == anchor]
    found = Lines(lines).block(place, levels=levels, siblings=siblings, header=header)
    return lines[found.start].strip(), lines[found.stop - 1].strip()


@pytest.mark.parametrize(
    ("anchor", "levels", "ends"),
    [
        ("go()", 1, ("if True:", "come()")),
        ("go()", 2, ("def one(self):", "return 1")),
        ("go()", 3, ("class A:", "return 2")),
        ("go()", 0, ("class A:", "return 2")),
        ("go()", 9, ("class A:", "return 2")),
        ("return 2", 1, ("def two(self):", "return 2")),
        ("x = 1", 1, ("class A:", "return 2")),
        ("def top():", 1, ("def top():", "return 1")),
        ("import os", 0, ("import os", "import os")),
    ],
)
def test_each_level_selects_the_next_enclosing_block(anchor: str, levels: int, ends: tuple[str, str]) -> None:
    assert block(PYTHON, anchor, levels=levels) == ends


def test_header_and_siblings() -> None:
    assert block(PYTHON, "go()", levels=2, header=True) == ("# about one", "return 1")
    assert block(PYTHON, "go()", levels=2, siblings=True) == ("x = 1", "return 2")
    assert block(PYTHON, "go()", siblings=True) == ("import os", "return 2")


def test_braces_belong_to_what_they_enclose() -> None:
    assert block(C, "return 1;", levels=1) == ("if (a) {", "}")
    assert block(C, "*b;", levels=1) == ("int f(int a,", "}")
    assert block(C, "*b;", header=True) == ("/* the", "}")


GNU = """
void
f (int a)
{
  while (a)
    {
      g ();
    }
}
""".splitlines()


def test_a_brace_that_is_deeper_than_its_line_is_no_level_of_its_own() -> None:
    assert block(GNU, "g ();", levels=1) == ("while (a)", "}")
    assert block(GNU, "g ();", levels=2) == ("f (int a)", "}")
    at = Lines(GNU).block(6, levels=1, siblings=False, header=False)
    assert (at.start, at.stop) == (4, 8)


INDENTS = ["", "  ", "\t", "\t\t", "      "]
TEXTS = ["", "a", "# a", "}", "{"]
LINES = st.lists(
    st.builds(str.__add__, st.sampled_from(INDENTS), st.sampled_from(TEXTS)), min_size=1, max_size=30
)


@given(LINES, st.data())
def test_a_block_has_its_anchor_and_grows_with_what_is_asked(lines: list[str], data: st.DataObject) -> None:
    anchor = data.draw(st.integers(0, len(lines) - 1))
    of = Lines(lines)
    plain = [of.block(anchor, levels=n, siblings=False, header=False) for n in (1, 2, 3, 0)]
    for found in plain:
        assert 0 <= found.start <= anchor < found.stop <= len(lines)
    starts = [found.start for found in plain]
    assert starts == sorted(starts, reverse=True)
    for siblings, header in ((True, False), (False, True)):
        more = of.block(anchor, levels=1, siblings=siblings, header=header)
        assert more.start <= plain[0].start


@given(st.integers(0, 50), st.integers(0, 50), st.integers(1, 60))
def test_a_window_is_as_large_as_it_may_be_around_its_anchor(above: int, below: int, limit: int) -> None:
    block = range(100, 100 + above + 1 + below)
    shown = window(block, 100 + above, limit)
    assert len(shown) == min(limit, len(block))
    assert 100 + above in shown
    assert block.start <= shown.start
    assert shown.stop <= block.stop
