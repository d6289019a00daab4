"""Names, metadata and goals beside the rollouts: the last line counts, whichever server wrote it."""

import json
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.engine.storage import thread_summary
from app_server.engine.storage.codex_compat import goal_in
from app_server.engine.storage.encode import stored_events
from app_server.engine.storage.line_reader import last_goal
from app_server.engine.storage.rollout_reader import read_rollout
from app_server.engine.storage.thread_summary import METADATA_FILE, NAMES_FILE, LastLineIndex, MetadataStore
from app_server.engine.storage.writer import RolloutWriter
from app_server.engine.support.engine_errors import RolloutUnreadable
from app_server_protocol.encoding import Json
from app_server_protocol.engine.events import Goal, GoalCleared, GoalStatus, GoalUpdated, SessionEvent
from app_server_protocol.rollout import GitInfo
from tests.engine.storage.stored import assistant, conversation_id, now, store

ONE, TWO = conversation_id(1), conversation_id(2)


def notes(home: Path) -> MetadataStore:
    return MetadataStore(home, lambda: 1_700_000_000.25)


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
    noted.set_revision(ONE, GitInfo(commit_hash="c0ffee"))
    assert other.read().name(ONE) == "secret two"
    noted.forget(ONE.upper())
    assert "secret" not in (tmp_path / NAMES_FILE).read_text()
    assert (tmp_path / METADATA_FILE).read_text() == ""
    assert (other.read().name(ONE), other.read().name(TWO), other.read().revision(ONE)) == (
        None,
        "stays",
        None,
    )


def test_metadata_has_its_form(tmp_path: Path) -> None:
    notes(tmp_path).set_revision(
        ONE, GitInfo(commit_hash="c0ffee", branch="main", repository_url="https://example.com")
    )
    assert json.loads((tmp_path / METADATA_FILE).read_text()) == {
        "id": ONE,
        "git_info": {"sha": "c0ffee", "branch": "main", "origin_url": "https://example.com"},
        "updated_at": "2023-11-14T22:13:20.250Z",
    }


def test_metadata_without_a_revision_has_none(tmp_path: Path) -> None:
    noted, lines = notes(tmp_path), LastLineIndex(tmp_path / METADATA_FILE)
    assert noted.read().revision(ONE) is None
    lines.append(ONE, {"git_info": "main"})
    assert noted.read().revision(ONE) is None
    lines.append(ONE, {"git_info": {"branch": 5}})
    assert noted.read().revision(ONE) == noted.read().revision(ONE.upper()) == GitInfo()


def test_an_empty_name_is_none(tmp_path: Path) -> None:
    noted = notes(tmp_path)
    noted.set_name(ONE, "")
    assert (noted.read().name(ONE), noted.read().named(lambda name: True)) == (None, [])


def test_a_revision_says_what_was_cleared(tmp_path: Path) -> None:
    noted = notes(tmp_path)
    noted.set_revision(ONE, GitInfo(commit_hash="c0ffee", branch="main"))
    noted.set_revision(ONE, GitInfo(commit_hash="c0ffee", repository_url="https://example.com"))
    assert notes(tmp_path).read().revision(ONE) == GitInfo(
        commit_hash="c0ffee", repository_url="https://example.com"
    )


@given(st.lists(st.tuples(st.sampled_from([ONE, TWO]), st.text())), st.integers(0, 8))
def test_reading_in_steps_is_reading_at_once(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[str, str]], step: int
) -> None:
    path = tmp_path_factory.mktemp("home") / "lines"
    writer, reader = LastLineIndex(path), LastLineIndex(path)
    for number, (id, text) in enumerate(changes):
        writer.append(id, {"text": text})
        if step and number % step == 0:
            reader.read()
    assert dict(reader.read()) == {id: {"id": id, "text": text} for id, text in changes}


def lines_in(folder: Path) -> LastLineIndex:
    return LastLineIndex(folder / "lines")


def test_what_was_read_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    pread = os.pread

    def counted(fd: int, length: int, offset: int) -> bytes:
        found = pread(fd, length, offset)
        read.append(len(found))
        return found

    lines = lines_in(tmp_path)
    lines.append(ONE, {"n": 1})
    first = lines.read()
    monkeypatch.setattr(os, "pread", counted)
    assert lines.read() is first
    assert read == []
    lines.append(TWO, {"n": 2})
    del read[:]
    assert {id: line["n"] for id, line in lines.read().items()} == {ONE: 1, TWO: 2}
    assert sum(read) == len(json.dumps({"id": TWO, "n": 2}, separators=(",", ":"))) + 1
    assert {id: line["n"] for id, line in first.items()} == {ONE: 1}, "it is not changed under its reader"


def test_a_file_that_shrank_or_was_written_anew_is_read_from_its_begin(tmp_path: Path) -> None:
    lines = lines_in(tmp_path)
    lines.append(ONE, {"n": 1})
    lines.append(TWO, {"n": 2})
    assert set(lines.read()) == {ONE, TWO}
    os.truncate(lines.path, lines.path.stat().st_size // 2)
    assert set(lines.read()) == {ONE}
    lines.path.unlink()
    assert set(lines.read()) == set()
    lines.append(TWO, {"n": 3})
    assert set(lines.read()) == {TWO}


def test_a_line_counts_once_its_end_is_written(tmp_path: Path) -> None:
    lines = lines_in(tmp_path)
    lines.append(ONE, {"n": 1})
    with lines.path.open("ab") as file:
        file.write(b'{"id":"' + TWO.encode())
        file.flush()
        assert set(lines.read()) == {ONE}
        file.write(b'"}\n')
    assert set(lines.read()) == {ONE, TWO}


def test_forgetting_keeps_the_lines_of_others_as_they_are(tmp_path: Path) -> None:
    lines = lines_in(tmp_path)
    lines.append(ONE, {"n": 1})
    lines.append(TWO, {"n": 2})
    with lines.path.open("ab") as file:
        file.write(b"no record\n" + json.dumps({"id": ONE.upper(), "n": 3}).encode() + b"\ntorn")
    (tmp_path / ".lines.new").write_text("of a server that crashed")
    lines.forget(ONE)
    assert lines.path.read_bytes() == json.dumps({"id": TWO, "n": 2}, separators=(",", ":")).encode() + (
        b"\nno record\n"
    )
    assert stat.S_IMODE(lines.path.stat().st_mode) == 0o600
    assert set(os.listdir(tmp_path)) == {"lines", ".locks"}
    before = lines.path.stat().st_ino
    lines.forget(ONE)
    assert lines.path.stat().st_ino == before, "there is nothing to forget"


def test_only_so_many_bytes_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines_in(tmp_path).append(ONE, {"n": 1})
    monkeypatch.setattr(thread_summary, "MAX_NOTED_BYTES", 0)
    assert dict(lines_in(tmp_path).read()) == {}


GOAL = Goal(objective="ship", created_at=7, updated_at=8)
WHOLE: Json = {
    "objective": "ship",
    "status": "active",
    "token_budget": None,
    "tokens_used": 0,
    "seconds_used": 0.0,
    "created_at": 7,
    "updated_at": 8,
}

goals = st.builds(
    Goal,
    objective=st.text(st.characters(codec="utf-8")),
    status=st.sampled_from(GoalStatus),
    token_budget=st.none() | st.integers(0),
    tokens_used=st.integers(0),
    seconds_used=st.floats(0, allow_nan=False, allow_infinity=False),
    created_at=st.integers(),
    updated_at=st.integers(),
)


def append(path: Path, event: GoalUpdated | GoalCleared) -> None:
    writer = RolloutWriter.resume(path, now)
    writer.append(stored_events(SessionEvent("", None, event), identity=True))
    writer.close()


def both_ways(path: Path) -> Goal | None:
    """Return the goal that a reader of the whole file finds, and check that a reader from its end finds the same."""
    found = last_goal(path)
    assert read_rollout(path).goal == found
    return found


def test_the_last_line_about_a_goal_counts(tmp_path: Path) -> None:
    path = store(tmp_path, [])
    assert both_ways(path) is None
    append(path, GoalUpdated(GOAL))
    assert both_ways(path) == GOAL
    writer = RolloutWriter.resume(path, now)
    writer.append([assistant('{"type":"event_msg","payload":{"type":"goal_cleared"}}')])
    writer.close()
    assert both_ways(path) == GOAL
    with path.open("ab") as file:
        file.write(b'{"timestamp":"t","type":"event_msg","payload":{"type":"exec_command_end"}}\n')
    assert both_ways(path) == GOAL, "an event of another kind says nothing of the goal"
    append(path, GoalCleared())
    assert both_ways(path) is None


def test_a_file_that_is_not_there_has_no_goal(tmp_path: Path) -> None:
    with pytest.raises(RolloutUnreadable, match="no such file"):
        last_goal(tmp_path / "none")


@given(goals)
def test_a_goal_is_read_as_it_was_stored(goal: Goal) -> None:
    [line] = stored_events(SessionEvent("", None, GoalUpdated(goal)), identity=False)
    assert goal_in(json.loads(line.to_json())) == goal


@pytest.mark.parametrize(
    "payload",
    [
        None,
        {},
        [],
        {"goal": 5},
        {"goal": {}},
        *({"goal": {**WHOLE, key: {}}} for key in WHOLE if key != "objective"),
        *({"goal": {k: v for k, v in WHOLE.items() if k != key}} for key in WHOLE),
        {"goal": {**WHOLE, "created_at": float("inf")}},
    ],
)
def test_what_is_no_goal_is_none(payload: Json) -> None:
    assert goal_in(payload) is None


def test_numbers_are_read_as_what_they_are() -> None:
    goal = goal_in({"goal": {**WHOLE, "token_budget": 5.0, "seconds_used": 1}})
    assert goal is not None
    assert (goal.token_budget, goal.seconds_used) == (5, 1.0)
