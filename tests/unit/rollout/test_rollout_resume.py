import os
from pathlib import Path

import pytest

from app_server.core.errors import RolloutBusy
from app_server.core.rollout.conversation import read_rollout, rebuild_history, reopen
from app_server.core.rollout.rollout_names import journal_path, new_rollout_path
from app_server.core.rollout.writer import RolloutWriter
from protocol.responses import (
    CustomToolCall,
    CustomToolCallOutput,
    FunctionCallOutput,
    FunctionCallOutputPayload,
    ResponseItem,
)
from protocol.rollout import CompactedItem
from tests.unit.rollout.stored import MOMENT, assistant, call, conversation_id, meta, now, store, texts, user


def crash(home: Path, recorded: list[ResponseItem], journaled: list[ResponseItem]) -> Path:
    """A server that recorded some items, had told of others, and died."""
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
    assert reopened.stored.leftover == (), "what was recovered is no longer left over"
    return list(reopened.stored.items)


def test_items_that_were_sent_but_not_recorded_exist_after_a_crash(tmp_path: Path) -> None:
    path = crash(tmp_path, [user("q")], [assistant("told")])
    assert texts(resumed(path)) == ["q", "told"]
    assert texts(read_rollout(path).items) == ["q", "told"], "and it is recorded now"
    assert not journal_path(path).exists()
    assert texts(resumed(path)) == ["q", "told"], "once"


def test_what_was_both_recorded_and_journaled_is_there_once(tmp_path: Path) -> None:
    same, other = assistant("same"), assistant("other")
    path = crash(tmp_path, [same], [same, other])
    assert texts(resumed(path)) == ["same", "other"]


def test_two_equal_items_are_two(tmp_path: Path) -> None:
    first, second = assistant("same"), assistant("same")
    path = crash(tmp_path, [first], [first, second])
    assert texts(resumed(path)) == ["same", "same"]


def test_an_equal_item_of_an_earlier_turn_does_not_count(tmp_path: Path) -> None:
    path = store(tmp_path, [assistant("same")])
    child = os.fork()
    if child == 0:
        RolloutWriter.resume(path, now).write_journal([assistant("same")])
        os._exit(0)
    os.waitpid(child, 0)
    assert texts(resumed(path)) == ["same", "same"]


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
