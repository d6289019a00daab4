"""Hunks against text: where they match, and that nothing else changes."""

import difflib

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from app_server.core.patch.hunks import Haystack, apply_hunks, decode
from app_server.core.patch.parse import PatchError, UpdateFile, parse_patch
from tests.unit.patch.worlds import wrap


def patched(content: bytes, *lines: str) -> bytes:
    (operation,) = parse_patch(wrap("*** Update File: f", *lines)).operations
    assert isinstance(operation, UpdateFile)
    return apply_hunks(decode(content), operation.hunks, "/ws/f").encode()


@pytest.mark.parametrize(
    ("before", "lines", "after"),
    [
        (b"a\nb\nc\n", ("@@", " a", "-b", "+B"), b"a\nB\nc\n"),
        (b"x\na\nx\na\n", ("@@", "-a", "+b"), b"x\nb\nx\na\n"),
        (b"a\nb\na\n", ("@@", "-a", "+x", "*** End of File"), b"a\nb\nx\n"),
        (b"def f\n  x\ndef g\n  x\n", ("@@ def g", "-  x", "+  y"), b"def f\n  x\ndef g\n  y\n"),
        (b"A\n f\n x\nB\n f\n x\n", ("@@ B", "@@  f", "- x", "+ y"), b"A\n f\n x\nB\n f\n y\n"),
        (b"a\n", ("@@", "+b"), b"a\nb\n"),
        (b"a\n\n", ("@@", "+b"), b"a\n\nb\n"),
        (b"", ("@@", "+new"), b"new\n"),
        (b"a\n", ("@@", "+b", ""), b"a\nb\n"),
        (b"a\nb\n", ("@@", "-a", "-b"), b""),
        (b"a\nb\n", ("@@", "-a", "+x", "", "@@", "-b", "+y"), b"x\ny\n"),
        (b"a\n\nb\n", ("@@", "-a", "-", "+x", "+", " b"), b"x\n\nb\n"),
    ],
)
def test_a_hunk_changes_its_place(before: bytes, lines: tuple[str, ...], after: bytes) -> None:
    assert patched(before, *lines) == after


@pytest.mark.parametrize(
    ("before", "lines", "after"),
    [
        (b"a\r\nb\r\n", ("@@", " a", "-b", "+B", "+C"), b"a\r\nB\r\nC\r\n"),
        (b"a\r\nb\nc\r\n", ("@@", "-b", "+B"), b"a\r\nB\nc\r\n"),
        (b"a\r\nb\nc\r\n", ("@@", "-a", "-b", "-c", "+A", "+B", "+C"), b"A\r\nB\nC\r\n"),
        (b"a\r\nb", ("@@", " b", "+c"), b"a\r\nb\r\nc\r\n"),
        (b"\xef\xbb\xbfa\nb\n", ("@@", "-a", "+A"), b"\xef\xbb\xbfA\nb\n"),
        (b"\xef\xbb\xbf", ("@@", "+A"), b"\xef\xbb\xbfA\n"),
        (b"a\nb", ("@@", "-a", "+A"), b"A\nb"),
        (b"a\nb", ("@@", "-a", "+A", " b"), b"A\nb"),
        (b"a\nb", ("@@", " a", "-b", "+B"), b"a\nB\n"),
        (b"a\nb", ("@@", "-b"), b"a\n"),
        (b"a  \nb\n", ("@@", " a", "-b", "+B"), b"a  \nB\n"),
        ("a\x0bb\u2028c\rd\ne\n".encode(), ("@@", "-e", "+E"), "a\x0bb\u2028c\rd\nE\n".encode()),
    ],
)
def test_line_ends_and_untouched_bytes_stay(before: bytes, lines: tuple[str, ...], after: bytes) -> None:
    assert patched(before, *lines) == after


@pytest.mark.parametrize(
    ("file", "wanted"),
    [
        ("a - b", "a - b"),
        ("a  ", "a"),
        ("\ta ", "a"),
        ("a \u2013 b", "a - b"),
        ("\u201cq\u201d it\u2019s", '"q" it\'s'),
        ("a\u00a0b", "a b"),
    ],
)
def test_a_line_is_found_loosely(file: str, wanted: str) -> None:
    assert Haystack(["x", file]).find([wanted], 0) == 1


def test_a_stricter_match_further_down_wins() -> None:
    assert Haystack(["a ", "a"]).find(["a"], 0) == 1


def test_nothing_is_found_above_the_start_or_beyond_the_end() -> None:
    haystack = Haystack(["a", "b", "a"])
    assert haystack.find(["a"], 1) == 2
    assert haystack.find(["a"], 3) is None
    assert haystack.find(["b"], 0, at_end=True) is None
    assert haystack.find(["a", "b", "a", "a"], 0) is None


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (("@@", "-nine", "+9"), "Failed to find expected lines in /ws/f:\nnine"),
        (("@@", " a", "-nope"), "Failed to find expected lines in /ws/f:\na\nnope"),
        (("@@ nosuch", "-a"), "Failed to find context 'nosuch' in /ws/f"),
        (("@@", " a", "-b", "+B", "@@", "-b", "+BB"), "Failed to find expected lines in /ws/f:\nb"),
        (("@@", "-c", "+C", "@@", "-a", "+A"), "Failed to find expected lines in /ws/f:\na"),
        (("@@", "-a", "+A", "*** End of File"), "Failed to find expected lines in /ws/f:\na"),
    ],
)
def test_a_hunk_that_does_not_fit_is_an_error(lines: tuple[str, ...], message: str) -> None:
    with pytest.raises(PatchError) as caught:
        patched(b"a\nb\nc\n", *lines)
    assert str(caught.value) == message


LINES = st.lists(
    st.text(st.characters(codec="utf-8", exclude_characters="\n\r\ufeff"), max_size=3), max_size=12
)
EDITS = st.lists(
    st.tuples(
        st.sampled_from(["insert", "delete", "replace"]), st.integers(0, 20), st.text("abc", max_size=2)
    )
)


@given(LINES, EDITS, st.sampled_from(["\n", "\r\n"]), st.booleans(), st.integers(0, 3))
def test_a_patch_made_from_an_edit_gives_the_edited_file(
    old: list[str], edits: list[tuple[str, int, str]], end: str, bom: bool, context: int
) -> None:
    new = list(old)
    for kind, at, text in edits:
        at = min(at, len(new))
        new[at : at + (kind != "insert")] = [] if kind == "delete" else [text]
    assume(old != new)
    hunks = list(difflib.unified_diff(old, new, n=len(old) if context == 0 else 3 * context, lineterm=""))[2:]
    lines = ["@@" if line.startswith("@@") else line for line in hunks]
    removed = [[line[1:] for line in group] for group in _groups(lines)]
    assume(all(_once(old, group) for group in removed))
    mark = "\ufeff" if bom else ""
    before = (mark + "".join(line + end for line in old)).encode()
    after = (mark + "".join(line + (end if old else "\n") for line in new)).encode()
    assert patched(before, *lines) == after


def _groups(lines: list[str]) -> list[list[str]]:
    groups: list[list[str]] = []
    for line in lines:
        if line == "@@":
            groups.append([])
        elif line[:1] != "+":
            groups[-1].append(line)
    return groups


def _once(lines: list[str], group: list[str]) -> bool:
    """The group can be found in one place only, also without whitespace around its lines."""
    stripped, wanted = [line.strip() for line in lines], [line.strip() for line in group]
    places = [n for n in range(len(lines) - len(group) + 1) if stripped[n : n + len(group)] == wanted]
    return (len(places) == 1 and bool(group)) or not lines
