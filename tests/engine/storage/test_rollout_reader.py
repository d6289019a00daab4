import gc
import json
import os
import tempfile
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app_server.engine.storage import disk
from app_server.engine.storage import line_reader as raw
from app_server.engine.storage import rollout_reader as reader
from app_server.engine.storage.journal import NOTHING
from app_server.engine.storage.line_reader import raw_lines
from app_server.engine.storage.record import StoredRecord, revert_line
from app_server.engine.storage.rollout_reader import (
    ITEM_NAMES,
    StoredConversation,
    read_rollout,
)
from app_server.engine.storage.thread_summary import read_message_text
from app_server.engine.storage.turn_index import TurnIndexes, find_cut
from app_server.engine.storage.turn_pages import open_history
from app_server.engine.support.engine_errors import RolloutUnreadable
from app_server_protocol.engine.thread_settings import PromptMode, SystemPrompt
from app_server_protocol.events.messages import AgentMessageEvent, UserMessageEvent
from app_server_protocol.parse import read
from app_server_protocol.responses import KnownItem, MessageItem
from app_server_protocol.rollout import CompactedItem, TurnContextItem
from tests.engine.storage.stored import conversation, items_shown, meta, raw_line, store, texts, user


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    return store(tmp_path, [*conversation("q0", "a0"), *conversation("q1", "a1")])


ALL = ["q0", "a0", "q1", "a1"]


def read_file(path: Path, content: bytes) -> StoredConversation:
    path.write_bytes(content)
    return read_rollout(path, messages=True)


def data_of(path: Path) -> list[bytes]:
    fd = os.open(path, os.O_RDONLY)
    try:
        return [line.data for line in raw_lines(fd)]
    finally:
        os.close(fd)


def test_what_was_written_is_read(stored: Path) -> None:
    found = read_rollout(stored, messages=True)
    assert found.meta.cwd == "/work"
    assert texts(found.items) == ALL
    assert [type(event) for event in found.messages] == [UserMessageEvent, AgentMessageEvent] * 2
    assert found.leftover == NOTHING
    assert read_rollout(stored).messages == (), "nobody asked for them"


def test_lines_spelled_otherwise_are_read_in_their_place(stored: Path) -> None:
    first, *rest = stored.read_bytes().splitlines(keepends=True)
    spaced = raw_line("response_item", user("spaced").to_value())
    found = read_file(stored, first + b"".join(rest[:4]) + spaced + b"".join(rest[4:]))
    assert texts(found.items) == ["q0", "a0", "spaced", "q1", "a1"]


def test_a_compaction_keeps_its_place_among_the_items(stored: Path) -> None:
    content = stored.read_bytes() + raw_line("compacted", {"message": "summary"})
    content += raw_line("response_item", user("after").to_value())
    kinds = [type(item) for item in read_file(stored, content).items]
    assert kinds == [MessageItem] * 4 + [CompactedItem, MessageItem]


def test_the_model_of_the_last_turn_is_known(tmp_path: Path) -> None:
    turns = [
        read(
            TurnContextItem,
            {"cwd": "/", "approval_policy": "never", "sandbox_policy": {"mode": "read-only"}, "model": model},
        )
        for model in ("first", "second")
    ]
    assert read_rollout(store(tmp_path, turns)).last.model == "second"


@pytest.mark.parametrize(
    "spoiled",
    [
        lambda c: c.rstrip(b"\n"),
        lambda c: c + b"{",
        lambda c: c + '{"timestamp":"é'.encode()[:-1],
        lambda c: c + b"\0" * 4096,
        lambda c: b"\xef\xbb\xbf" + c,
        lambda c: c.replace(b"\n", b"\r\n"),
        lambda c: c.replace(b"\n", b"\n\n"),
        lambda c: c + raw_line("from_the_future", {}),
        lambda c: c + b'5\nnull\n"x"\n[]\n{}\n',
        lambda c: c + b"[" * 100_000 + b"]" * 100_000 + b"\n",
        lambda c: c + b'{"timestamp":' + b'{"a":' * 100_000 + b"\n",
        lambda c: c + raw_line("event_msg", {"type": "user_message", "message": 5}),
        lambda c: c + raw_line("response_item", {"type": "message", "role": "user"}),
        lambda c: c + raw_line("response_item", {"type": "novelty"}),
        lambda c: c + c.splitlines()[1].replace(b"q0", b"\xff\xfe") + b"\n",
        lambda c: c + c.splitlines()[1].replace(b'"}]}}', b'"}]},{"a":{}}}') + b"\n",
    ],
    ids=lambda value: "spoiled",
)
def test_damage_affects_only_the_damaged_line(stored: Path, spoiled: Callable[[bytes], bytes]) -> None:
    found = read_file(stored, spoiled(stored.read_bytes()))
    assert texts(found.items) == ALL


def test_lines_that_are_too_long_are_replaced_wherever_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(raw, "MAX_LINE_BYTES", 10)
    monkeypatch.setattr(raw, "CHUNK_BYTES", 4)
    path = tmp_path / "lines"
    path.write_bytes(b"a" * 10 + b"\n" + b"b" * 11 + b"\nc\n" + b"d" * 11)
    assert data_of(path) == [b"a" * 10, b"", b"c", b""]


@given(st.binary(max_size=300), st.integers(1, 40))
@settings(max_examples=200)
def test_lines_are_the_same_however_the_file_is_cut_into_pieces(content: bytes, chunk: int) -> None:
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setattr(raw, "CHUNK_BYTES", chunk)
        patch.setattr(raw, "FIRST_BYTES", chunk)
        path = Path(folder, "lines")
        path.write_bytes(content)
        lines = data_of(path)
    expected = content.split(b"\n")
    assert lines == (expected if expected[-1] else expected[:-1])


@given(st.binary(max_size=200), st.integers(0, 5000))
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_file_torn_anywhere_with_anything_behind_keeps_its_whole_lines(
    stored: Path, tail: bytes, cut: int
) -> None:
    whole = stored.read_bytes()
    first = whole.index(b"\n") + 1
    kept = whole[: first + cut % (len(whole) - first)]
    complete = sum(
        line.endswith(b"}}") and f'"{text}"}}]'.encode() in line for line in kept.splitlines() for text in ALL
    )
    found = read_file(stored, kept + b"\n" + tail)
    assert texts(found.items)[:complete] == ALL[:complete]
    stored.write_bytes(whole)


@pytest.mark.parametrize("content", [b"", b"\n\n", b"root:x:0:0:secret\n", b'{"type":"session_meta"}\n'])
def test_what_is_no_rollout_is_refused_without_its_content(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "passwd"
    path.write_bytes(content)
    with pytest.raises(RolloutUnreadable) as refusal:
        read_rollout(path)
    assert "secret" not in str(refusal.value)


def test_lines_are_validated_in_batches_in_their_order(stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "BATCH", 3)
    validated: list[int] = []
    all_items = reader._all_items

    def counted(records: Sequence[StoredRecord]) -> list[KnownItem] | None:
        validated.append(len(records))
        return all_items(records)

    monkeypatch.setattr(reader, "_all_items", counted)
    found = read_rollout(stored, messages=True)
    assert texts(found.items) == ALL
    assert [type(event) for event in found.messages] == [UserMessageEvent, AgentMessageEvent] * 2
    assert max(validated) == 3


def test_a_batch_with_a_damaged_line_has_its_other_lines(stored: Path) -> None:
    first, *lines = stored.read_bytes().splitlines(keepends=True)
    broken = [
        line.replace(b'"message":"q1"', b'"message":5').replace(b'"text":"a0"', b'"text":5') for line in lines
    ]
    found = read_file(stored, first + b"".join(broken))
    assert texts(found.items) == ["q0", "q1", "a1"]
    assert [getattr(event, "message", None) for event in found.messages] == ["q0", "a0", "a1"]


def test_the_first_lines_are_read_alone(stored: Path) -> None:
    found = read_rollout(stored, 4, messages=True)
    assert (texts(found.items), found.lines) == (["q0"], 4)
    assert len(found.messages) == 2
    assert read_rollout(stored, 100).lines == len(stored.read_bytes().splitlines())


def test_events_of_turns_and_items_are_passed_over(stored: Path) -> None:
    more = [
        raw_line("event_msg", {"type": "task_started"}),
        raw_line("event_msg", {"type": "task_started"}).replace(b": ", b":").replace(b", ", b","),
        raw_line("event_msg", {"type": "turn_item"}).replace(b": ", b":").replace(b", ", b","),
        raw_line("event_msg", {"type": "exec_command_end"}).replace(b": ", b":").replace(b", ", b","),
    ]
    found = read_file(stored, stored.read_bytes() + b"".join(more))
    assert texts(found.items) == ALL
    assert len(found.messages) == 4


def test_messages_in_another_form_are_read_in_their_place(stored: Path) -> None:
    first, *lines = stored.read_bytes().splitlines(keepends=True)
    spaced = raw_line("event_msg", {"type": "user_message", "message": "spaced"})
    deltas = raw_line("event_msg", {"type": "agent_message_delta", "delta": "x"})
    found = read_file(stored, first + b"".join(lines[:2]) + spaced + deltas + b"".join(lines[2:]))
    assert [getattr(event, "message", None) for event in found.messages] == [
        "q0",
        "spaced",
        "a0",
        "q1",
        "a1",
    ]


def test_the_first_metadata_counts(stored: Path) -> None:
    second = raw_line("session_meta", {**meta(5).to_value(), "cwd": "/second"})
    assert read_file(stored, stored.read_bytes() + second).meta.cwd == "/work"


def test_the_instructions_of_a_client_stay_if_their_turn_is_reverted(stored: Path) -> None:
    """As all settings do. A reader of damaged ones finds none."""
    begun, whole = len(data_of(stored)), stored.read_bytes()
    given = {"model": "m", "system_prompt": {"mode": "append", "text": "Speak Latin."}}
    reverted = (
        whole
        + raw_line("turn_context", given)
        + raw_line("event_msg", json.loads(revert_line(begun, 1).to_json()))
    )
    found = read_file(stored, reverted)
    assert found.last.system_prompt == SystemPrompt(mode=PromptMode.APPEND, text="Speak Latin.")
    assert found.last.model is None, "that of the last turn which counts"
    for damaged in ({"system_prompt": {"mode": "shout", "text": "x"}}, {"system_prompt": 5}, {}):
        assert read_file(stored, whole + raw_line("turn_context", damaged)).last.system_prompt is None


@pytest.mark.parametrize("form", [b"", b" "])
def test_settings_are_read_in_any_form(stored: Path, form: bytes) -> None:
    fields = {
        "cwd": "/",
        "approval_policy": "never",
        "sandbox_policy": {"type": "read-only"},
        "model": "m",
        "summary": "auto",
    }
    line = raw_line("turn_context", fields).replace(b": ", b":" + form).replace(b", ", b"," + form)
    assert read_file(stored, stored.read_bytes() + line).last.model == "m"


def test_settings_without_a_model_say_none(stored: Path) -> None:
    content = stored.read_bytes()
    for payload in (b"{}", b'{"model":5}', b"{x}"):
        line = b'{"timestamp":"t","type":"turn_context","payload":' + payload + b"}\n"
        assert read_file(stored, content + line).last.model is None


def test_a_file_that_is_too_large_is_refused(stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = stored.stat().st_size
    monkeypatch.setattr(disk, "MAX_ROLLOUT_BYTES", size)
    assert texts(read_rollout(stored).items) == ALL
    monkeypatch.setattr(disk, "MAX_ROLLOUT_BYTES", size - 1)
    with pytest.raises(RolloutUnreadable, match=rf"is too large to be read \({size} bytes\)"):
        read_rollout(stored)


def _turns(path: Path) -> object:
    with open_history(path, "id", TurnIndexes()) as history:
        return history.all_turns()


READERS: dict[str, Callable[[Path], object]] = {
    "history": read_rollout,
    "turns": _turns,
    "cut": lambda path: find_cut(path, "id", TurnIndexes(), "turn", behind=True),
    "items": lambda path: items_shown(path, "id"),
    "messages": read_message_text,
}


@pytest.mark.parametrize("name", READERS)
def test_nobody_reads_a_sparse_file_to_its_end(stored: Path, name: str) -> None:
    os.truncate(stored, 1 << 40)  # reading all of it would take hours
    with pytest.raises(RolloutUnreadable, match="too large to be read"):
        READERS[name](stored)


@pytest.mark.parametrize("enabled", [True, False])
def test_the_garbage_collector_is_as_it_was_after_reading(stored: Path, enabled: bool) -> None:
    before = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        read_rollout(stored)
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if before else gc.disable)()


def test_the_kinds_of_entries_of_the_history() -> None:
    assert {"message", "function_call"} < ITEM_NAMES


def test_a_file_that_begins_with_an_endless_line_is_given_up(
    stored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(raw, "MAX_LINE_BYTES", 4 * raw.CHUNK_BYTES)
    stored.write_bytes(b"")
    os.truncate(stored, disk.MAX_ROLLOUT_BYTES)
    tracemalloc.start()
    try:
        with pytest.raises(RolloutUnreadable, match="its first line is too long"):
            read_rollout(stored)
        assert tracemalloc.get_traced_memory()[1] < 10 * raw.CHUNK_BYTES
    finally:
        tracemalloc.stop()
