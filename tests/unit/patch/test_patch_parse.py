"""The grammar: what is taken, what is refused and with which words."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.core.patch.parse import (
    AddFile,
    DeleteFile,
    Hunk,
    HunkLine,
    Patch,
    PatchSyntaxError,
    UpdateFile,
    parse_patch,
)
from tests.unit.patch.worlds import wrap

HEADERS = "Valid hunk headers: '*** Add File: {path}', '*** Delete File: {path}', '*** Update File: {path}'"


def hunk(*lines: str, headers: tuple[str, ...] = (), at_end: bool = False) -> Hunk:
    marked = tuple(HunkLine(line[0], line[1:]) for line in lines)  # type: ignore[arg-type]  # the tests' own marks
    return Hunk(headers, marked, at_end)


def test_every_operation_is_read_in_order() -> None:
    text = wrap(
        "*** Add File: a/new.txt",
        "+one",
        "+",
        "*** Delete File: gone.txt",
        "*** Update File: old.txt",
        "*** Move to: new place.txt",
        "@@ class A",
        "@@   def f",
        " keep",
        "-old",
        "+new",
        "",
        "@@",
        "+last",
        "*** End of File",
    )
    assert parse_patch(text) == Patch(
        (
            AddFile("a/new.txt", "one\n\n"),
            DeleteFile("gone.txt"),
            UpdateFile(
                "old.txt",
                (
                    hunk(" keep", "-old", "+new", " ", headers=("class A", "  def f")),
                    hunk("+last", at_end=True),
                ),
                "new place.txt",
            ),
        )
    )


def test_the_first_hunk_may_go_without_a_marker() -> None:
    assert parse_patch(wrap("*** Update File: f", "-a", "+b")) == Patch(
        (UpdateFile("f", (hunk("-a", "+b"),)),)
    )


@pytest.mark.parametrize("start", ["<<EOF", "<<'EOF'", '<<"EOF"'])
def test_a_heredoc_around_the_patch_is_taken_off(start: str) -> None:
    text = f"{start}\n{wrap('*** Delete File: f')}\nEOF\n"
    assert parse_patch(text) == Patch((DeleteFile("f"),))


def test_a_patch_with_carriage_returns_is_the_same_patch() -> None:
    text = wrap("*** Update File: f", "@@", "-a", "+b")
    assert parse_patch(text.replace("\n", "\r\n")) == parse_patch(text)


def test_an_empty_patch_has_no_operations() -> None:
    assert parse_patch(wrap()) == Patch(())


def test_an_added_file_may_be_empty() -> None:
    assert parse_patch(wrap("*** Add File: f")) == Patch((AddFile("f", ""),))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nothing", "invalid patch: The first line of the patch must be '*** Begin Patch'"),
        ("", "invalid patch: The first line of the patch must be '*** Begin Patch'"),
        ("*** Begin Patch", "invalid patch: The last line of the patch must be '*** End Patch'"),
        (
            "*** Begin Patch\n*** Delete File: f\n",
            "invalid patch: The last line of the patch must be '*** End Patch'",
        ),
        (
            wrap("*** Frobnicate File: old.txt"),
            f"invalid hunk at line 2, '*** Frobnicate File: old.txt' is not a valid hunk header. {HEADERS}",
        ),
        (
            wrap("*** Environment ID: x", "*** Add File: n"),
            f"invalid hunk at line 2, '*** Environment ID: x' is not a valid hunk header. {HEADERS}",
        ),
        (
            wrap("*** Add File: ", "+x"),
            f"invalid hunk at line 2, '*** Add File:' is not a valid hunk header. {HEADERS}",
        ),
        (
            wrap("*** Add File: a", "b", "+x"),
            f"invalid hunk at line 3, 'b' is not a valid hunk header. {HEADERS}",
        ),
    ],
)
def test_messages_that_models_know_stay_as_they_are(text: str, message: str) -> None:
    with pytest.raises(PatchSyntaxError) as caught:
        parse_patch(text)
    assert str(caught.value) == message
    assert caught.value.for_model() == f"apply_patch verification failed: {message}"


@pytest.mark.parametrize(
    ("lines", "line", "mentions"),
    [
        (("*** Update File: f",), 2, "'f'"),
        (("*** Update File: f", "*** Move to: g"), 2, "'f'"),
        (("*** Update File: f", "*** Move to: ", "@@", "-a"), 3, "no path"),
        (("*** Update File: f", "@@"), 4, "the end of the patch"),
        (("*** Update File: f", "@@", "*** End of File"), 4, "End of File"),
        (("*** Update File: f", "@@", "zork"), 4, "'zork'"),
        (("*** Update File: f", "@@", " a", "zork"), 5, "'zork'"),
        (("*** Update File: f", "@@", "-a", "*** End of File", "+b"), 6, "'+b'"),
        (("*** Delete File: d", "foo"), 3, "'foo'"),
    ],
)
def test_a_broken_hunk_is_reported_with_its_line(lines: tuple[str, ...], line: int, mentions: str) -> None:
    with pytest.raises(PatchSyntaxError, match=f"^invalid hunk at line {line}, ") as caught:
        parse_patch(wrap(*lines))
    assert mentions in str(caught.value)


MARKERS = ("*** Begin Patch", "*** End Patch", "*** Add File: a", "*** Update File: b", "*** Delete File: c")
OTHERS = (
    "*** Move to: d",
    "*** End of File",
    "***",
    "@@",
    "@@ x",
    "+x",
    "-y",
    " z",
    "",
    "<<EOF",
    "EOF",
    "\r",
    "\0",
)
FRAGMENTS = st.sampled_from((*MARKERS, *OTHERS))


@given(st.one_of(st.text(), st.lists(st.one_of(FRAGMENTS, st.text(max_size=5))).map("\n".join)))
def test_no_text_raises_anything_else(text: str) -> None:
    for candidate in (text, wrap(text)):
        with contextlib.suppress(PatchSyntaxError):
            parse_patch(candidate)
