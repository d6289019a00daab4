"""A stored conversation read for a copy, and the lines that are copied."""

import json
from pathlib import Path

from app_server.core.rollout import conversation as resume
from app_server.core.rollout.conversation import copied_lines, copy_lines, read_for_fork, read_rollout, reopen
from app_server.core.rollout.record import revert_line
from app_server.core.rollout.rollout_names import journal_path, new_rollout_path
from app_server.core.rollout.writer import NoRollout, RolloutWriter
from protocol.base import Json
from protocol.responses import (
    FunctionCallOutput,
    FunctionCallOutputPayload,
    LocalShellCall,
    LocalShellExec,
    LocalShellStatus,
)
from tests.unit.rollout.stored import (
    MOMENT,
    assistant,
    call,
    conversation,
    conversation_id,
    meta,
    now,
    raw_line,
    store,
    texts,
    user,
)

ABORTED = FunctionCallOutputPayload(content="aborted")


def payloads(path: Path) -> list[Json]:
    return [json.loads(line)["payload"] for line in path.read_bytes().splitlines()]


def with_journal(home: Path, *items: Json) -> Path:
    """A rollout beside which a crashed server left a journal."""
    path = store(home, conversation())
    writer = RolloutWriter.resume(path, now)
    writer.write_journal(items)
    writer.close()
    assert journal_path(path).exists()
    return path


def copy_of(path: Path, home: Path, keeps: int | None = None) -> Path:
    copy = new_rollout_path(home, MOMENT, conversation_id(9))
    writer = RolloutWriter.create(copy, now, [meta(9)])
    copy_lines(read_for_fork(path, keeps), writer)
    writer.close()
    return copy


def test_a_copy_has_every_line_behind_the_metadata(tmp_path: Path) -> None:
    path = store(tmp_path, conversation())
    copy = copy_of(path, tmp_path / "other")
    assert payloads(copy)[0]["id"] == conversation_id(9)
    assert path.read_bytes().splitlines()[1:] == copy.read_bytes().splitlines()[1:]


def test_a_copy_has_the_lines_that_are_asked_for(tmp_path: Path) -> None:
    path = with_journal(tmp_path, assistant("left over"))
    copy = copy_of(path, tmp_path / "other", keeps=3)
    assert path.read_bytes().splitlines()[1:3] == copy.read_bytes().splitlines()[1:]


def test_what_is_no_record_is_not_copied(tmp_path: Path) -> None:
    path = store(tmp_path, conversation())
    spaced = raw_line("response_item", assistant("spaced").to_value())
    novel = raw_line("from_the_future", {"x": 1})
    with path.open("ab") as file:
        file.write(b"\n{torn\n[]\n" + spaced + raw_line("session_meta", meta(3).to_value()) + novel)
        file.write(b'{"type":5,"payload":{}}\n')
    copied = list(copied_lines(read_rollout(path)))
    assert copied == [*path.read_bytes().splitlines()[1:5], spaced.rstrip(), novel.rstrip()]


def test_lines_that_were_taken_back_are_not_copied(tmp_path: Path) -> None:
    path = store(tmp_path, [user("kept"), user("gone")])
    reopened = reopen(path, now, revert=revert_line(2, 1))
    assert texts(reopened.stored.items) == ["kept"]
    assert (len(reopened.stored.taken_back._starts), reopened.stored.lines) == (1, 4)
    reopened.writer.append([user("new")])
    reopened.writer.close()
    assert texts(read_rollout(copy_of(path, tmp_path / "other")).items) == ["kept", "new"]
    assert texts(read_rollout(path, 3).items) == ["kept", "gone"], "before the line that takes it back"


def test_what_a_crash_left_over_is_copied_with_its_outputs_and_stays_where_it_was(tmp_path: Path) -> None:
    path = with_journal(tmp_path, assistant("told"), call("running"))
    before = path.read_bytes(), journal_path(path).read_bytes()
    stored = read_for_fork(path)
    aborted = FunctionCallOutput(call_id="running", output=ABORTED)
    assert stored.leftover == (assistant("told"), call("running"), aborted)
    copy = copy_of(path, tmp_path / "other")
    assert texts(read_rollout(copy).items) == ["question", "answer", "told"]
    assert read_rollout(copy).items[-1] == aborted
    assert (path.read_bytes(), journal_path(path).read_bytes()) == before


def test_a_call_of_the_provider_is_aborted_under_either_of_its_ids(tmp_path: Path) -> None:
    def local(**ids: str | None) -> LocalShellCall:
        return LocalShellCall(
            status=LocalShellStatus.COMPLETED, action=LocalShellExec(command=("ls",)), **ids
        )

    items = [local(id="a", call_id="b"), local(id="c", call_id=None), local(id=None, call_id=None)]
    assert resume.with_outputs(items, []) == [
        *items,
        FunctionCallOutput(call_id="b", output=ABORTED),
        FunctionCallOutput(call_id="c", output=ABORTED),
    ]
    done = FunctionCallOutput(call_id="b", output=ABORTED)
    assert resume.with_outputs(items[:1], [done]) == items[:1]


def test_many_lines_are_copied_in_pieces(tmp_path: Path) -> None:
    count = 2 * resume.LINES_AT_ONCE + 3
    path = store(tmp_path, [user(f"line {n}") for n in range(count)])
    copy = copy_of(path, tmp_path / "other")
    assert texts(read_rollout(copy).items) == [f"line {n}" for n in range(count)]


def test_a_conversation_that_is_not_stored_has_no_problem() -> None:
    writer = NoRollout()
    writer.append([user("x")])
    writer.write_journal([user("x")])
    writer.flush()
    writer.close()
    assert (writer.path, writer.problem) == (None, None)
