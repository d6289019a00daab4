"""Patches of files that are not in UTF-8: unchanged parts keep their bytes."""

from pathlib import Path

import pytest

from app_server.engine.workspace.patch.changes import shown_changes, shown_texts, turn_diff
from app_server.engine.workspace.patch.parse import PatchError
from tests.engine.workspace.patch.worlds import apply, plan

TEXT = "Straße\ncount = 1\nÜbung\n"
TEXT_KOI = "да\ncount = 1\n"
KANJI = "表示\ncount = 1\n能力\\\n"


@pytest.mark.parametrize(
    ("encoding", "text"),
    [("latin-1", TEXT), ("cp1252", "“a”\ncount = 1\n"), ("shift-jis", KANJI), ("euc-jp", KANJI), ("koi8-r", TEXT_KOI)],
)  # fmt: skip
def test_a_line_is_changed_and_all_others_keep_their_bytes(tmp_path: Path, encoding: str, text: str) -> None:
    file = tmp_path / "f"
    file.write_bytes(text.encode(encoding))
    apply(tmp_path, "*** Update File: f", "@@", "-count = 1", "+count = 2")
    assert file.read_bytes() == text.replace("1", "2").encode(encoding)


def test_what_clients_are_shown_is_valid_text(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(TEXT.encode("latin-1"))
    planned = plan(tmp_path, "*** Update File: f", "@@", "-count = 1", "+count = 2")
    apply(tmp_path, "*** Update File: f", "@@", "-count = 1", "+count = 2")
    diff = turn_diff([planned], None, str(tmp_path))
    for shown in (repr(shown_changes(planned)), repr(shown_texts(planned)), diff or ""):
        shown.encode()
        assert "Stra\ufffde" in shown
    assert "+count = 2" in (diff or "")


def test_a_line_beyond_ascii_is_not_mixed_into_another_encoding(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(TEXT.encode("latin-1"))
    with pytest.raises(PatchError, match="not in UTF-8, so only lines in ASCII can be added"):
        plan(tmp_path, "*** Update File: f", "@@", "-count = 1", "+count = ü")
    assert (tmp_path / "f").read_bytes() == TEXT.encode("latin-1")


@pytest.mark.parametrize("added", ["\udcfc", "\ud800"], ids=["a byte", "a surrogate"])  # noqa: PT014  both are
@pytest.mark.parametrize("content", [b"a\n", b"a\n\xfc\n"])
def test_a_patch_adds_no_bytes_that_are_no_text(tmp_path: Path, content: bytes, added: str) -> None:
    (tmp_path / "f").write_bytes(content)
    with pytest.raises(PatchError, match="the new text is not valid Unicode"):
        plan(tmp_path, "*** Update File: f", "@@", "-a", f"+{added}")
    with pytest.raises(PatchError, match="Failed to find expected lines"):
        plan(tmp_path, "*** Update File: f", "@@", "-\udcfd", "+b")


def test_a_file_in_another_encoding_can_be_moved_replaced_and_deleted(tmp_path: Path) -> None:
    for name in ("moved", "replaced", "deleted"):
        (tmp_path / name).write_bytes(TEXT.encode("latin-1"))
    apply(tmp_path, "*** Update File: moved", "*** Move to: there", "@@", "-count = 1", "+count = 2")
    apply(tmp_path, "*** Add File: replaced", "+über")
    apply(tmp_path, "*** Delete File: deleted")
    assert (tmp_path / "there").read_bytes() == TEXT.replace("1", "2").encode("latin-1")
    assert (tmp_path / "replaced").read_text("utf-8") == "über\n"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["replaced", "there"]
