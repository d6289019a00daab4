"""A stored conversation that is resumed or forked: its last settings, its lines, and those that no longer count."""

import json
import os
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.engine.storage import rollout_reader as resume
from app_server.engine.storage.journal import NOTHING, with_outputs
from app_server.engine.storage.line_reader import BLOCK, MOST_KEPT, last_turn_context, lines_from_the_end
from app_server.engine.storage.pagination import PageRequest
from app_server.engine.storage.record import REVERTED, RevertedRanges, revert_line
from app_server.engine.storage.rollout_names import journal_path, new_rollout_path
from app_server.engine.storage.rollout_reader import (
    copied_lines,
    copy_lines,
    read_rollout,
    rebuild_history,
    recovered_items,
    reopen,
)
from app_server.engine.storage.turn_index import TurnIndexes
from app_server.engine.storage.turn_pages import open_history
from app_server.engine.storage.writer import RolloutWriter
from app_server.engine.support.engine_errors import NotStored, RolloutBusy, RolloutUnreadable
from app_server_protocol.encoding import Json
from app_server_protocol.responses import (
    CustomToolCall,
    CustomToolCallOutput,
    FunctionCallOutput,
    FunctionCallOutputPayload,
    LocalShellCall,
    LocalShellExec,
    LocalShellStatus,
    ResponseItem,
)
from app_server_protocol.rollout import CompactedItem
from tests.engine.storage.stored import (
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
from tests.support.full_disk import FullDisk


def crash(home: Path, recorded: list[ResponseItem], journaled: list[ResponseItem]) -> Path:
    """Write the files of a server that recorded some items, had sent others, and died."""
    path = new_rollout_path(home, MOMENT, conversation_id(1))
    child = os.fork()
    if child == 0:
        writer = RolloutWriter.create(path, now, [meta()])
        writer.write_journal(journaled)
        writer.append(recorded)
        os._exit(0)
    os.waitpid(child, 0)
    return path


def resumed(path: Path) -> list[object]:
    reopened = reopen(path, now)
    assert reopened.writer.problem is None
    reopened.writer.close()
    assert reopened.stored.leftover == NOTHING, "what was recovered is no longer left over"
    return list(reopened.stored.items)


def test_items_that_were_sent_but_not_recorded_exist_after_a_crash(tmp_path: Path) -> None:
    path = crash(tmp_path, [user("q")], [assistant("told")])
    assert texts(resumed(path)) == ["q", "told"]
    assert texts(read_rollout(path).items) == ["q", "told"], "and it is recorded now"
    assert not journal_path(path).exists()
    assert texts(resumed(path)) == ["q", "told"], "once"


def test_a_call_that_nobody_saw_end_is_aborted(tmp_path: Path) -> None:
    done = FunctionCallOutput(call_id="done", output=FunctionCallOutputPayload(content="out"))
    patch = CustomToolCall(call_id="patch", name="apply_patch", input="")
    path = crash(tmp_path, [], [call("done"), call("running"), done, patch])
    items = resumed(path)
    assert items[:3] == [call("done"), call("running"), done]
    assert items[4:] == [
        FunctionCallOutput(call_id="running", output=FunctionCallOutputPayload(content="aborted")),
        CustomToolCallOutput(call_id="patch", output="aborted"),
    ]
    assert resumed(path) == items


@pytest.mark.parametrize("cut", range(1, 160, 7))
def test_a_journal_torn_anywhere_gives_what_is_whole(tmp_path: Path, cut: int) -> None:
    path = crash(tmp_path, [], [assistant("first"), assistant("second")])
    journal = journal_path(path)
    content = journal.read_bytes()
    journal.write_bytes(content[:-cut])
    expected = ["first", "second"][: content[:-cut].count(b"\n") + content[:-cut].endswith(b"}}")]
    assert texts(resumed(path)) == expected


def test_who_resumes_does_not_take_what_another_writes(tmp_path: Path) -> None:
    path = new_rollout_path(tmp_path, MOMENT, conversation_id(1))
    writer = RolloutWriter.create(path, now, [meta()])
    writer.write_journal([assistant("open")])
    with pytest.raises(RolloutBusy):
        reopen(path, now)
    writer.append([assistant("open")])
    writer.write_journal([])
    writer.close()
    assert texts(resumed(path)) == ["open"]


def test_history_is_items_with_compactions_folded_in() -> None:
    def rebuild(before: object, line: CompactedItem) -> list[ResponseItem]:
        assert isinstance(before, list)
        if line.replacement_history is not None:
            return list(line.replacement_history)
        return [user(f"{len(before)} items: {line.message}")]

    given = (assistant("given"),)
    lines: list[ResponseItem | CompactedItem] = [
        user("a"),
        assistant("b"),
        CompactedItem(message="one"),
        user("c"),
        CompactedItem(message="two"),
        user("d"),
    ]
    assert texts(rebuild_history(lines, rebuild)) == ["2 items: two", "d"]
    lines.append(CompactedItem(message="three", replacement_history=given))
    assert texts(rebuild_history(lines, rebuild)) == ["given"]


ABORTED = FunctionCallOutputPayload(content="aborted")


def payloads(path: Path) -> list[Json]:
    return [json.loads(line)["payload"] for line in path.read_bytes().splitlines()]


def with_journal(home: Path, *items: Json) -> Path:
    """Write a rollout beside which a crashed server left a journal."""
    path = store(home, conversation())
    writer = RolloutWriter.resume(path, now)
    writer.write_journal(items)
    writer.close()
    assert journal_path(path).exists()
    return path


def test_an_equal_item_of_an_earlier_turn_does_not_count(tmp_path: Path) -> None:
    path = with_journal(tmp_path, assistant("answer"))
    assert texts(resumed(path)) == ["question", "answer", "answer"]


def copy_of(path: Path, home: Path, keeps: int | None = None) -> Path:
    copy = new_rollout_path(home, MOMENT, conversation_id(9))
    writer = RolloutWriter.create(copy, now, [meta(9)])
    copy_lines(read_rollout(path, keeps), writer)
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
    assert (len(reopened.stored.reverted_lines._ranges), reopened.stored.lines) == (1, 4)
    reopened.writer.append([user("new")])
    reopened.writer.close()
    assert texts(read_rollout(copy_of(path, tmp_path / "other")).items) == ["kept", "new"]
    assert texts(read_rollout(path, 3).items) == ["kept", "gone"], "before the line that takes it back"


def test_what_only_the_journal_has_is_taken_back_too(tmp_path: Path) -> None:
    """It is of the last turn, which is among those that are taken back: its lines could not be written."""
    path = crash(tmp_path, [user("kept"), user("gone")], [assistant("told"), call("running")])
    reopened = reopen(path, now, revert=revert_line(2, 1))
    reopened.writer.close()
    assert texts(reopened.stored.items) == ["kept"]
    assert not journal_path(path).exists()
    assert texts(read_rollout(path).items) == ["kept"]


def test_lines_are_not_taken_back_where_that_cannot_be_written(tmp_path: Path) -> None:
    path = crash(tmp_path, [user("kept"), user("gone")], [assistant("told")])
    reopened = reopen(path, now, FullDisk(0).disk(), revert_line(2, 1))
    assert isinstance(reopened.not_reverted, NotStored)
    assert "no space left on device" in str(reopened.not_reverted)
    assert texts(reopened.stored.items) == ["kept", "gone", "told"]
    reopened.writer.close()
    assert texts(resumed(path)) == ["kept", "gone", "told"]


@pytest.mark.parametrize("head", [b"", b"no record\n"])
def test_turns_are_those_of_pages_where_lines_were_taken_back(tmp_path: Path, head: bytes) -> None:
    """This holds also if the metadata are not in the first line."""
    path = store(tmp_path, [*conversation("one"), *conversation("two")])
    path.write_bytes(head + path.read_bytes())
    reopened = reopen(path, now, revert=revert_line(5 + bool(head), 1), turns=True)
    reopened.writer.close()
    with open_history(path, conversation_id(1), TurnIndexes()) as history:
        assert reopened.stored.turns == history.whole()
        [turn] = history.turns(PageRequest()).rows
        assert history.whole().turns == (turn,)
        assert len(history.whole().ids.times) == 4, "also those that were taken back"


def test_what_a_crash_left_over_is_copied_with_its_outputs_and_stays_where_it_was(tmp_path: Path) -> None:
    path = with_journal(tmp_path, assistant("told"), call("running"))
    before = path.read_bytes(), journal_path(path).read_bytes()
    stored = read_rollout(path)
    aborted = FunctionCallOutput(call_id="running", output=ABORTED)
    assert recovered_items(stored) == [assistant("told"), call("running"), aborted]
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
    assert with_outputs(items, []) == [
        *items,
        FunctionCallOutput(call_id="b", output=ABORTED),
        FunctionCallOutput(call_id="c", output=ABORTED),
    ]
    done = FunctionCallOutput(call_id="b", output=ABORTED)
    assert with_outputs(items[:1], [done]) == items[:1]


def test_many_lines_are_copied_in_pieces(tmp_path: Path) -> None:
    count = 2 * resume.LINES_AT_ONCE + 3
    path = store(tmp_path, [user(f"line {n}") for n in range(count)])
    copy = copy_of(path, tmp_path / "other")
    assert texts(read_rollout(copy).items) == [f"line {n}" for n in range(count)]


KEEPS: st.SearchStrategy[Json] = st.integers(-2, 40) | st.sampled_from([None, True, "3", 2.0])


@given(st.lists(st.tuples(st.integers(0, 5), KEEPS), max_size=12), st.integers(0, 12))
def test_a_line_takes_back_what_is_between_the_kept_lines_and_itself(
    lines: list[tuple[int, Json]], shared: int
) -> None:
    """This holds also if a reader continues from the state of another one."""
    reverted_lines, gone = RevertedRanges(), set[int]()
    number = -1
    for n, (passed, keeps) in enumerate(lines):
        if n == shared:
            known = set(gone)
            before, reverted_lines = reverted_lines, RevertedRanges(reverted_lines)
        number += passed + 1
        valid = type(keeps) is int and 1 <= keeps <= number
        assert reverted_lines.take({"kept_lines": keeps}, number) is valid
        if valid:
            gone |= set(range(keeps, number + 1))
    everything = range(-1, number + 3)
    assert {n for n in everything if n in reverted_lines} == gone
    assert bool(reverted_lines) is bool(gone)
    if shared < len(lines):
        assert {n for n in everything if n in before} == known


def test_the_line_is_read_as_it_was_written() -> None:
    line = json.loads(revert_line(3, 2).to_json())
    assert line == {"type": REVERTED, "num_turns": 2, "kept_lines": 3}
    reverted_lines = RevertedRanges()
    assert reverted_lines.take(line, 5)
    assert [n for n in range(8) if n in reverted_lines] == [3, 4, 5]


def from_the_end(path: Path, mark: bytes) -> list[bytes]:
    fd = os.open(path, os.O_RDONLY)
    try:
        return list(lines_from_the_end(fd, mark))
    finally:
        os.close(fd)


def turn_context(model: str) -> bytes:
    payload = {
        "cwd": "/work",
        "approval_policy": "never",
        "sandbox_policy": {"type": "read-only"},
        "model": model,
        "summary": "auto",
    }
    return raw_line("turn_context", payload).replace(b'"type": "turn_context"', b'"type":"turn_context"')


def test_lines_come_back_to_front_wherever_blocks_end(tmp_path: Path) -> None:
    lengths = (5, 0, BLOCK - 3, BLOCK, 2 * BLOCK + 7, 3)
    lines = [b"%d<mark>" % n + b"x" * length for n, length in enumerate(lengths)]
    between = b"y" * (BLOCK - 1)
    for end in (b"", b"\n"):
        path = tmp_path / "file"
        path.write_bytes(b"\n".join([*lines, between, *lines]) + end)
        assert from_the_end(path, b"<mark>") == [*lines[::-1], *lines[::-1]]
        assert from_the_end(path, b"3<mark>") == [lines[3]] * 2
        assert from_the_end(path, b"<mark>x<mark>") == []
    path.write_bytes(b"")
    assert from_the_end(path, b"<mark>") == []


def test_a_line_with_several_marks_comes_once(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"<mark> and <mark>\nnone\n<mark>")
    assert from_the_end(path, b"<mark>") == [b"<mark>", b"<mark> and <mark>"]


def test_a_line_without_end_costs_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"<mark>\n" + b"x" * (MOST_KEPT + BLOCK) + b"<mark>\n<mark> last\n")
    assert from_the_end(path, b"<mark>") == [b"<mark> last", b"<mark>"]
    os.truncate(path, 1 << 40)
    tracemalloc.start()
    try:
        assert from_the_end(path, b"<mark>") == []
        assert tracemalloc.get_traced_memory()[1] < 4 * MOST_KEPT
    finally:
        tracemalloc.stop()


def test_the_last_turn_that_can_be_read_counts(tmp_path: Path) -> None:
    path = tmp_path / "rollout"
    path.write_bytes(turn_context("first") + turn_context("second") + b'{"type":"turn_context", torn')
    found = last_turn_context(path)
    assert found is not None
    assert found.model == "second"
    path.write_bytes(raw_line("event_msg", {"type": "user_message", "message": '"type":"turn_context"'}))
    assert last_turn_context(path) is None


def test_a_file_that_is_gone_is_told_as_such(tmp_path: Path) -> None:
    with pytest.raises(RolloutUnreadable, match="no such file"):
        last_turn_context(tmp_path / "rollout")
