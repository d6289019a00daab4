"""What is ignored, held against what git itself says."""

import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app_server.core.files.ignore import RuleSet, parse_rules

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
    """Walk down to `path` as a search does: nothing below an ignored folder is seen."""
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
