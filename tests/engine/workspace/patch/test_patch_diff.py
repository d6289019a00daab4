"""Hunks against text: the places where they match; and diffs of texts and of a whole turn."""

import difflib
import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from app_server.engine.tools.tool_base import TurnDiffTracker
from app_server.engine.workspace.patch import diff
from app_server.engine.workspace.patch.diff import unified_hunks
from app_server.engine.workspace.patch.hunks import Haystack, apply_hunks, decode
from app_server.engine.workspace.patch.parse import PatchError, UpdateFile, parse_patch
from tests.engine.workspace.patch.worlds import plan, wrap, write
from tests.support.waiting import executed_lines

ALPHABET = st.lists(st.sampled_from("ab\nc"), max_size=30).map("".join)


@given(ALPHABET, ALPHABET, st.integers(0, 3))
def test_a_diff_leads_from_the_old_text_to_the_new_one(old: str, new: str, context: int) -> None:
    assert diff_applied(old, unified_hunks(old, new, context)) == new


def diff_applied(old: str, diff: str) -> str:
    """Apply a diff strictly: every line and every number of a hunk must fit."""
    lines = re.findall(r"[^\n]*\n|[^\n]+$", old)
    result: list[str] = []
    at = 0
    for hunk in re.split(r"(?m)^(?=@@ )", diff)[1:]:
        header, *body = re.findall(r"[^\n]*\n", hunk)
        numbers = re.fullmatch(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@\n", header)
        assert numbers
        a_start, a_count, b_start, b_count = (int(n) if n else 1 for n in numbers.groups())
        start = a_start - 1 if a_count else a_start
        result += lines[at:start]
        assert len(result) == (b_start - 1 if b_count else b_start)
        at = start
        came = len(result)
        for n, line in enumerate(body):
            text = line[1:]
            if body[n + 1 : n + 2] == ["\\ No newline at end of file\n"]:
                text = text[:-1]
            if line[0] in " -":
                assert lines[at] == text
                at += 1
            if line[0] in " +":
                result.append(text)
        assert (at - start, len(result) - came) == (a_count, b_count)
    return "".join(result + lines[at:])


@pytest.mark.parametrize(
    ("old", "new", "diff"),
    [
        ("", "", ""),
        ("a\n", "a\n", ""),
        ("", "a\nb\n", "@@ -0,0 +1,2 @@\n+a\n+b\n"),
        ("a\n", "", "@@ -1 +0,0 @@\n-a\n"),
        ("a", "a\n", "@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+a\n"),
        ("a\r\nb\r\n", "a\r\nB\r\n", "@@ -1,2 +1,2 @@\n a\r\n-b\r\n+B\r\n"),
        ("1\n2\n3\n4\n", "1\nx\n3\ny\n", "@@ -1,4 +1,4 @@\n 1\n-2\n+x\n 3\n-4\n+y\n"),
        ("1\n2\n3\n4\n5\n", "x\n2\n3\n4\ny\n", "@@ -1,2 +1,2 @@\n-1\n+x\n 2\n@@ -4,2 +4,2 @@\n 4\n-5\n+y\n"),
        ("f {\n}\n", "f {\n}\ng {\n}\n", "@@ -2 +2,3 @@\n }\n+g {\n+}\n"),
    ],
)
def test_hunks_are_written_as_git_writes_them(old: str, new: str, diff: str) -> None:
    assert unified_hunks(old, new, 1) == diff


@pytest.mark.parametrize("keep", [7, 10**9])
def test_texts_with_little_in_common_do_not_take_long(keep: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The exact result would take work that grows with the square of the lines."""
    monkeypatch.setattr(diff, "STEPS", 4_000)
    old = "".join(f"{n if n % keep == 0 else n * 2 + 1}\n" for n in range(2_000))
    new = "".join(f"{n if n % keep == 0 else n * 2 + 100_000}\n" for n in range(2_000))
    assert diff_applied(old, unified_hunks(old, new, 3)) == new
    assert executed_lines(lambda: unified_hunks(old, new, 3)) < 1_000_000


def change(tracker: TurnDiffTracker, cwd: Path, *lines: str) -> None:
    made = plan(cwd, *lines)
    tracker.record(made)
    assert write(made)[0] == 0


def make_repository(folder: Path) -> None:
    (folder / ".git").mkdir()
    (folder / ".git/HEAD").write_text("ref: refs/heads/main\n")


def test_an_empty_git_folder_makes_no_repository(unversioned: Path) -> None:
    (unversioned / ".git").mkdir()
    tracker = TurnDiffTracker()
    change(tracker, unversioned, "*** Add File: a.txt", "+a")
    assert (tracker.unified_diff() or "").startswith(
        f"diff --git a/{unversioned}/a.txt b/{unversioned}/a.txt\n"
    )


def test_a_turn_is_shown_relative_to_its_repository(tmp_path: Path) -> None:
    ws = tmp_path / "repo/ws"
    ws.mkdir(parents=True)
    make_repository(tmp_path / "repo")
    (ws / "a.txt").write_text("a\nb\n")
    (ws / "gone.sh").write_text("bye\n")
    (ws / "gone.sh").chmod(0o755)
    (ws / "moved.txt").write_text("x\ny\n")
    tracker = TurnDiffTracker()
    change(tracker, ws, "*** Update File: a.txt", "@@", "-b", "+B", "*** Add File: new.txt", "+n")
    change(tracker, ws, "*** Delete File: gone.sh", "*** Add File: empty")
    change(tracker, ws, "*** Update File: moved.txt", "*** Move to: z.txt", "@@", "-y", "+Y")
    change(tracker, ws, "*** Update File: a.txt", "@@", " B", "+C")
    assert tracker.unified_diff() == (
        "diff --git a/ws/a.txt b/ws/a.txt\n"
        "index 422c2b7ab3b3c668038da977e4e93a5fc623169c..e642ff076b189381bc3f6e5f785f5c5e35aa81b7\n"
        "--- a/ws/a.txt\n+++ b/ws/a.txt\n@@ -1,2 +1,3 @@\n a\n-b\n+B\n+C\n"
        "diff --git a/ws/empty b/ws/empty\nnew file mode 100644\n"
        "index 0000000000000000000000000000000000000000..e69de29bb2d1d6434b8b29ae775ad8c2e48c5391\n"
        "diff --git a/ws/gone.sh b/ws/gone.sh\ndeleted file mode 100755\n"
        "index b023018cabc396e7692c70bbf5784a93d3f738ab..0000000000000000000000000000000000000000\n"
        "--- a/ws/gone.sh\n+++ /dev/null\n@@ -1 +0,0 @@\n-bye\n"
        "diff --git a/ws/new.txt b/ws/new.txt\nnew file mode 100644\n"
        "index 0000000000000000000000000000000000000000..8ba3a16384aacc37d01564b28401755ce8053f51\n"
        "--- /dev/null\n+++ b/ws/new.txt\n@@ -0,0 +1 @@\n+n\n"
        "diff --git a/ws/moved.txt b/ws/z.txt\n"
        "index b77b4eb1d946f923f61785536da9ca5af6909f06..7061c57fdb74676eefe47308270c70c835121efd\n"
        "--- a/ws/moved.txt\n+++ b/ws/z.txt\n@@ -1,2 +1,2 @@\n x\n-y\n+Y\n"
    )


def test_outside_of_a_repository_the_whole_path_is_shown(unversioned: Path) -> None:
    tracker = TurnDiffTracker()
    change(tracker, unversioned, "*** Add File: n", "+hello")
    diff = tracker.unified_diff() or ""
    assert diff.splitlines()[0] == f"diff --git a/{unversioned}/n b/{unversioned}/n"
    assert "..ce013625030ba8dba906f756967f9e9ca394464a\n" in diff


def test_what_came_and_went_within_the_turn_is_not_shown(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a\n")
    tracker = TurnDiffTracker()
    change(tracker, tmp_path, "*** Add File: n", "+x", "*** Update File: f", "@@", "-a", "+b")
    change(tracker, tmp_path, "*** Update File: n", "*** Move to: m", "@@", " x")
    change(tracker, tmp_path, "*** Delete File: m", "*** Update File: f", "@@", "-b", "+a")
    assert tracker.unified_diff() is None


def test_a_patch_that_was_not_written_shows_nothing(tmp_path: Path) -> None:
    tracker = TurnDiffTracker()
    tracker.record(plan(tmp_path, "*** Add File: n", "+x"))
    assert tracker.unified_diff() is None


def test_later_changes_and_modes_of_a_tracked_file_show(tmp_path: Path) -> None:
    make_repository(tmp_path)
    (tmp_path / "f").write_text("a\n")
    (tmp_path / "same").write_text("s\n")
    tracker = TurnDiffTracker()
    change(tracker, tmp_path, "*** Update File: f", "@@", "-a", "+b")
    change(tracker, tmp_path, "*** Update File: same", "*** Move to: other", "@@", " s")
    (tmp_path / "f").write_bytes(b"\xff\0")
    (tmp_path / "f").chmod(0o755)
    lines = (tracker.unified_diff() or "").splitlines()
    assert lines[:3] == ["diff --git a/f b/f", "old mode 100644", "new mode 100755"]
    assert lines[4:7] == ["--- a/f", "+++ b/f", "Binary files differ"]
    assert lines[7:] == [
        "diff --git a/same b/other",
        "similarity index 100%",
        "rename from same",
        "rename to other",
    ]


def test_git_itself_can_take_the_turn_back(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / "a").write_text("1\n2\n3\n")
    (tmp_path / "gone").write_text("bye")
    (tmp_path / "moved").write_text("m\n")
    tracker = TurnDiffTracker()
    change(tracker, tmp_path, "*** Update File: a", "@@", "-2", "+two", "*** Add File: d/n", "+n")
    change(
        tracker, tmp_path, "*** Delete File: gone", "*** Update File: moved", "*** Move to: new", "@@", " m"
    )
    diff = tracker.unified_diff() or ""
    subprocess.run(["git", "apply", "-R", "-"], cwd=tmp_path, input=diff.encode(), check=True)
    files = {path.name: path.read_text() for path in tmp_path.iterdir() if path.is_file()}
    assert files == {"a": "1\n2\n3\n", "gone": "bye", "moved": "m\n"}


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
    """Return whether the group can be found in one place only, also without whitespace around its lines."""
    stripped, wanted = [line.strip() for line in lines], [line.strip() for line in group]
    places = [n for n in range(len(lines) - len(group) + 1) if stripped[n : n + len(group)] == wanted]
    return (len(places) == 1 and bool(group)) or not lines
