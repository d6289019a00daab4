"""Names and metadata beside the rollouts: the last line counts, whoever writes, whatever the file looks like."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.core.git.revision import Revision
from app_server.core.rollout.latest_lines import LatestLines
from app_server.core.rollout.thread_notes import METADATA_FILE, NAMES_FILE, ThreadNotes
from tests.unit.rollout.stored import conversation_id

ONE, TWO = conversation_id(1), conversation_id(2)


def notes(home: Path) -> ThreadNotes:
    return ThreadNotes(home, lambda: 1_700_000_000.25)


def test_the_last_name_counts_in_every_server(tmp_path: Path) -> None:
    here, there = notes(tmp_path), notes(tmp_path)
    assert here.read().name(ONE) is None
    here.set_name(ONE, "first")
    there.set_name(ONE, "second")
    there.set_name(TWO, "other")
    assert (here.read().name(ONE), here.read().name(ONE.upper()), there.read().name(TWO)) == (
        "second",
        "second",
        "other",
    )
    assert here.read().named(lambda name: "e" in name) == [ONE, TWO]


def test_names_have_the_form_of_codex(tmp_path: Path) -> None:
    notes(tmp_path).set_name(ONE, "a\nb ☃")
    path = tmp_path / NAMES_FILE
    assert json.loads(path.read_text()) == {
        "id": ONE,
        "thread_name": "a\nb ☃",
        "updated_at": "2023-11-14T22:13:20.250Z",
    }
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_what_is_no_name_is_passed_over(tmp_path: Path) -> None:
    path, noted = tmp_path / NAMES_FILE, notes(tmp_path)
    noted.set_name(ONE, "kept")
    with path.open("ab") as file:
        file.write(b"\xff\xff\n[]\n5\n{}\n" + b"[" * 100_000 + b"\n" + b'{"id":5,"thread_name":"x"}\n')
        file.write(json.dumps({"id": TWO, "thread_name": 5}).encode() + b"\n")
        file.write(json.dumps({"id": ONE, "thread_name": "torn"}).encode()[:-3])
    assert (noted.read().name(ONE), noted.read().name(TWO)) == ("kept", None)
    noted.set_name(TWO, "behind a torn line")
    assert (noted.read().name(ONE), noted.read().name(TWO)) == ("kept", "behind a torn line")


def test_a_file_that_is_replaced_or_removed_is_read_anew(tmp_path: Path) -> None:
    path, noted = tmp_path / NAMES_FILE, notes(tmp_path)
    noted.set_name(ONE, "before")
    assert noted.read().name(ONE) == "before"
    beside = tmp_path / "beside"
    beside.write_text(json.dumps({"id": TWO, "thread_name": "after"}) + "\n")
    os.replace(beside, path)
    assert (noted.read().name(ONE), noted.read().name(TWO)) == (None, "after")
    path.unlink()
    assert noted.read().name(TWO) is None
    path.symlink_to("/etc/passwd")
    assert noted.read().name(TWO) is None
    with pytest.raises(OSError, match="symbolic"):
        noted.set_name(TWO, "through a link")


def test_a_conversation_is_forgotten_with_every_line_about_it(tmp_path: Path) -> None:
    noted, other = notes(tmp_path), notes(tmp_path)
    for name in ("secret one", "secret two"):
        noted.set_name(ONE, name)
    noted.set_name(TWO, "stays")
    noted.set_revision(ONE, Revision("c0ffee", None, None))
    assert other.read().name(ONE) == "secret two"
    noted.forget(ONE.upper())
    assert "secret" not in (tmp_path / NAMES_FILE).read_text()
    assert (tmp_path / METADATA_FILE).read_text() == ""
    assert (other.read().name(ONE), other.read().name(TWO), other.read().revision(ONE)) == (
        None,
        "stays",
        None,
    )


def test_a_revision_says_what_was_cleared(tmp_path: Path) -> None:
    noted = notes(tmp_path)
    noted.set_revision(ONE, Revision("c0ffee", "main", None))
    noted.set_revision(ONE, Revision("c0ffee", None, "https://example.com"))
    assert notes(tmp_path).read().revision(ONE) == Revision("c0ffee", None, "https://example.com")


@given(st.lists(st.tuples(st.sampled_from([ONE, TWO]), st.text())), st.integers(0, 8))
def test_reading_in_steps_is_reading_at_once(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[str, str]], step: int
) -> None:
    path = tmp_path_factory.mktemp("home") / "lines"
    writer, reader = LatestLines(path), LatestLines(path)
    for number, (id, text) in enumerate(changes):
        writer.append(id, {"text": text})
        if step and number % step == 0:
            reader.read()
    assert dict(reader.read()) == {id: {"id": id, "text": text} for id, text in changes}
