"""Pages of turns and items: joined, they are the whole conversation, for any state of the file."""

import json
import os
import re
import tempfile
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.engine.storage import turn_places
from app_server.engine.storage.decode import RolloutDecoder
from app_server.engine.storage.index_file import IndexFile
from app_server.engine.storage.line_reader import raw_lines
from app_server.engine.storage.pagination import Anchor, InvalidCursor, Page, PageRequest, parse_cursor
from app_server.engine.storage.record import REVERTED, StoredRecord, read_record
from app_server.engine.storage.saved_turns import SavedTurns
from app_server.engine.storage.turn_fold import TurnFold
from app_server.engine.storage.turn_index import TurnIndexes
from app_server.engine.storage.turn_pages import TurnHistory, open_history
from app_server.engine.support.lazy import Lazy
from app_server_protocol.encoding import Json
from app_server_protocol.engine.events import EndedItem, ItemCompleted, SessionEvent, TurnRecord
from app_server_protocol.engine.items import (
    AgentMessage,
    EnteredReview,
    ImageView,
    UserMessage,
    item_to_value,
)
from app_server_protocol.event_items import TextInput

THREAD = "01a1fc2e-450f-7ed0-9b52-64722a96c4dc"
Row = TypeVar("Row")

names = st.sampled_from(["a", "a-2", "b"])
turn_ids = st.sampled_from(["t1", "t2", "t3"])
texts = st.sampled_from(["", "x", 'say "hi"', "Compact task completed", 'a{"timestamp":'])
times = st.sampled_from([0, 5])


def event(kind: str, **fields: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    return st.fixed_dictionaries({"type": st.just(kind)}, optional=fields)


identity = {"turn_id": turn_ids, "item_id": names, "started_at_ms": times, "completed_at_ms": times}
payloads = st.one_of(
    event("task_started", turn_id=turn_ids, started_at=times, late=st.just(True)),
    event("task_complete", turn_id=turn_ids, completed_at=times, error=st.just({"message": "no"})),
    event("turn_aborted", turn_id=turn_ids, reason=st.just("interrupted")),
    event("user_message", message=texts, **identity),
    event("user_message", message=texts),
    event("agent_message", message=texts, **identity),
    event("agent_message", message=texts),
    event("agent_reasoning", text=texts, **identity),
    event("agent_reasoning_raw_content", text=texts, **identity),
    event("entered_review_mode", prompt=texts, user_facing_hint=texts, **identity),
    event("exited_review_mode", **identity),
    event("token_count", info=st.none()),
    event("turn_item", turn_id=turn_ids, item=names.map(lambda name: item_to_value(ImageView(name, "/p")))),
    event("turn_item", turn_id=turn_ids, item=st.just({"kind": "ImageView"})),
    event(REVERTED, kept_lines=st.sampled_from([0, 1, 2, 4, 8, True, "2"])),
)


def line(kind: str, payload: Json) -> bytes:
    return json.dumps(
        {"timestamp": "2026-01-01T00:00:00.000Z", "type": kind, "payload": payload}, separators=(",", ":")
    ).encode()


records = st.one_of(
    payloads.map(lambda payload: line("event_msg", payload)),
    st.sampled_from(
        [line("compacted", {"message": "m"}), line("response_item", {"type": "message", "content": []})]
    ),
)
lines = st.one_of(
    records,
    records,
    records,
    records.map(lambda whole: whole[: len(whole) // 2]),
    st.tuples(records, records).map(lambda two: two[0][:-3] + two[1]),
    records.map(lambda whole: b"\0\0 " + whole + b"\r"),
    records.map(lambda whole: whole.replace(b",", b", ")),
    st.sampled_from([b"", b"nothing", b"[]", b'{"type":"event_msg"}']),
)
files = st.tuples(st.lists(lines, max_size=25), st.booleans()).map(
    lambda drawn: b"\n".join(drawn[0]) + (b"\n" if drawn[1] else b"")
)


def whole(data: bytes) -> list[TurnRecord]:
    """Return all turns that count, read at once and folded."""
    fold = TurnFold()
    gone: set[int] = set()
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.flush()
        raw = list(raw_lines(file.fileno(), 0, 0, len(data)))
        found = [(each.number, known) for each in raw if (known := read_record(each.data)) is not None]
        for number, record in found:
            keeps = (record.value() or {}).get("kept_lines")
            if (record.kind, record.name) == ("event_msg", REVERTED) and raw[number].whole:
                gone |= set(range(keeps, number + 1)) if type(keeps) is int and keeps > 0 else set()
    reader, other = RolloutDecoder(THREAD), RolloutDecoder(THREAD)
    for line in found:
        if line[0] not in gone:
            fold.apply_all(reader.take(*line))
            other = RolloutDecoder(THREAD)
            continue
        for event in other.take(*line):  # reverted lines have used their ids
            if isinstance(event, SessionEvent) and isinstance(event.event, ItemCompleted):
                fold.ids.end(event.event.item.id)
    fold.apply_all(reader.finish())
    return fold.turns


def join(ask: Callable[[PageRequest], Page[Row]], limit: int, *, newest_first: bool) -> list[Row]:
    """Return the rows of all pages, in the order of the conversation."""
    rows: list[Row] = []
    request = PageRequest(limit=limit, newest_first=newest_first)
    while True:
        page = ask(request)
        assert len(page.rows) <= max(limit, 1)
        rows += page.rows
        if page.next_cursor is None:
            return rows[::-1] if newest_first else rows
        request = PageRequest(anchor=parse_cursor(page.next_cursor), limit=limit, newest_first=newest_first)


def items_of(turns: list[TurnRecord]) -> list[tuple[str, EndedItem]]:
    return [(turn.id, ended) for turn in turns for ended in turn.items]


def check(history: TurnHistory, turns: list[TurnRecord], limit: int, *, newest_first: bool) -> None:
    assert list(history.all_turns()) == turns
    assert join(history.turns, limit, newest_first=newest_first) == turns
    rows = join(history.items, limit, newest_first=newest_first)
    assert [(row.turn_id, row.ended) for row in rows] == items_of(turns)
    for turn in turns:
        of_turn = join(partial(history.items, turn_id=turn.id), limit, newest_first=newest_first)
        assert [row.ended for row in of_turn] == list(turn.items)


@given(files, st.integers(0, 4), st.booleans())
def test_pages_joined_are_the_whole_conversation(data: bytes, limit: int, newest_first: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "r.jsonl"
        path.write_bytes(data)
        with open_history(path, THREAD, TurnIndexes()) as history:
            check(history, whole(data), limit, newest_first=newest_first)


@given(files, st.data(), st.integers(1, 4), st.booleans())
def test_an_index_is_continued_when_the_file_grows(
    data: bytes, draw: st.DataObject, limit: int, newest_first: bool
) -> None:
    indexes = TurnIndexes()
    cuts = sorted(draw.draw(st.lists(st.integers(0, len(data)), max_size=3)))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "r.jsonl"
        for cut in [*cuts, len(data)]:
            with path.open("ab") as file:
                file.write(data[path.stat().st_size : cut])
            with open_history(path, THREAD, indexes) as history:
                check(history, whole(data[:cut]), limit, newest_first=newest_first)


@given(files, st.data(), st.integers(1, 4), st.booleans())
def test_a_saved_index_is_continued_by_another_server_when_the_file_has_grown(
    data: bytes, draw: st.DataObject, limit: int, newest_first: bool
) -> None:
    cuts = sorted(draw.draw(st.lists(st.integers(0, len(data)), max_size=3)))
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        patched.setattr(turn_places, "MIN_BYTES", 0)
        patched.setattr(turn_places, "GROWTH", 2**62)
        path = Path(folder) / "r.jsonl"
        for cut in [*cuts, len(data)]:
            with path.open("ab") as file:
                file.write(data[path.stat().st_size : cut])
            indexes = TurnIndexes(Lazy(lambda: SavedTurns(Lazy(lambda: IndexFile(Path(folder))))))
            with open_history(path, THREAD, indexes) as history:
                check(history, whole(data[:cut]), limit, newest_first=newest_first)


def stored(path: Path, *payloads: Json) -> Path:
    path.write_bytes(b"".join(line("event_msg", payload) + b"\n" for payload in payloads))
    return path


def old_file(path: Path, turns: int) -> Path:
    said = [
        each
        for n in range(turns)
        for each in (
            {"type": "user_message", "message": f"question {n}"},
            {"type": "agent_message", "message": f"answer {n}"},
        )
    ]
    return stored(path, *said)


def running(id: str, *items: UserMessage | AgentMessage) -> TurnRecord:
    return TurnRecord(id=id, items=tuple(EndedItem(item, 1, 2) for item in items))


def words(record: TurnRecord) -> list[str]:
    return [
        "".join(part.text for part in each.item.content if isinstance(part, TextInput))
        if isinstance(each.item, UserMessage)
        else getattr(each.item, "text", "")
        for each in record.items
    ]


def test_an_old_file_is_read_by_its_end_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, indexes = old_file(tmp_path / "r", 500), TurnIndexes()
    with open_history(path, THREAD, indexes) as history:
        history.turns(PageRequest(limit=1))
    read: list[int] = []
    pread, take = os.pread, RolloutDecoder.take

    def counted(fd: int, length: int, offset: int) -> bytes:
        found = pread(fd, length, offset)
        read.append(len(found))
        return found

    taken: list[int] = []

    def counted_take(reader: RolloutDecoder, number: int, record: StoredRecord) -> Json:
        taken.append(number)
        return take(reader, number, record)

    monkeypatch.setattr(os, "pread", counted)
    monkeypatch.setattr(RolloutDecoder, "take", counted_take)
    with open_history(path, THREAD, indexes) as history:
        page = history.turns(PageRequest(limit=2, newest_first=True))
    assert [words(turn) for turn in page.rows] == [[f"question {n}", f"answer {n}"] for n in (499, 498)]
    assert taken == [996, 997, 998, 999]
    assert sum(read) < 4096


def test_the_running_turn_comes_last(tmp_path: Path) -> None:
    path = old_file(tmp_path / "r", 2)
    live = running("live")
    with open_history(path, THREAD, TurnIndexes(), live) as history:
        assert history.turns(PageRequest(newest_first=True)).rows[0] is live
        assert len(history.all_turns()) == 3


def test_the_running_turn_stands_for_what_is_stored_of_it(tmp_path: Path) -> None:
    path = stored(
        tmp_path / "r",
        {"type": "task_started", "turn_id": "live"},
        {"type": "user_message", "message": "hi", "turn_id": "live", "item_id": "u"},
    )
    live = running("live", UserMessage("u", (TextInput(text="hi"),)), AgentMessage("m", ("so far",)))
    with open_history(path, THREAD, TurnIndexes(), live) as history:
        assert history.all_turns() == (live,)
        rows = history.items(PageRequest()).rows
        assert [(row.turn_id, row.ended.item.id) for row in rows] == [("live", "u"), ("live", "m")]


def test_the_running_turn_is_found_in_a_file_without_identity(tmp_path: Path) -> None:
    path = old_file(tmp_path / "r", 2)
    live = running("live", UserMessage("u", (TextInput(text="question 1"),)))
    with open_history(path, THREAD, TurnIndexes(), live) as history:
        first, second = history.all_turns()
        assert words(first)[0] == "question 0"
        assert second is live


@pytest.mark.parametrize("path", [None, Path("/nonexistent/rollout.jsonl")])
def test_a_thread_without_a_file_has_empty_pages(path: Path | None) -> None:
    with open_history(path, THREAD, TurnIndexes()) as history:
        assert history.turns(PageRequest()) == Page(())
        assert history.items(PageRequest()) == Page(())


def test_items_of_an_unknown_turn_are_an_empty_page(tmp_path: Path) -> None:
    with open_history(old_file(tmp_path / "r", 1), THREAD, TurnIndexes()) as history:
        assert history.items(PageRequest(), str(uuid.uuid4())) == Page(())


@pytest.mark.parametrize(("limit", "rows"), [(None, 25), (0, 1), (7, 7), (100, 100), (1000, 100)])
def test_limits(tmp_path: Path, limit: int | None, rows: int) -> None:
    with open_history(old_file(tmp_path / "r", 130), THREAD, TurnIndexes()) as history:
        assert len(history.turns(PageRequest(limit=limit)).rows) == rows
        assert len(history.items(PageRequest(limit=limit)).rows) == rows


def test_a_page_can_be_left_backwards(tmp_path: Path) -> None:
    with open_history(old_file(tmp_path / "r", 5), THREAD, TurnIndexes()) as history:
        newest = history.turns(PageRequest(limit=2, newest_first=True))
        assert newest.backwards_cursor is not None
        forwards = history.turns(PageRequest(anchor=parse_cursor(newest.backwards_cursor), limit=2))
        assert forwards.rows == newest.rows[:1]
        assert forwards.next_cursor is None


@pytest.mark.parametrize("cursor", ["zzz", "", "é", "W10", "bnVsbA", "WyJ4IiwxXQ"])
def test_what_is_no_cursor(cursor: str) -> None:
    with pytest.raises(InvalidCursor, match=r"^invalid cursor: "):
        parse_cursor(cursor)


def test_a_cursor_of_another_thread(tmp_path: Path) -> None:
    with open_history(old_file(tmp_path / "r", 1), THREAD, TurnIndexes()) as history:
        page = history.turns(PageRequest())
    assert page.backwards_cursor is not None
    other = str(uuid.uuid4())
    with open_history(tmp_path / "r", other, TurnIndexes()) as history, pytest.raises(InvalidCursor):
        history.turns(PageRequest(anchor=parse_cursor(page.backwards_cursor)))


@given(st.text(st.characters(codec="utf-8")), st.booleans())
def test_a_cursor_is_read_as_it_was_written(id: str, included: bool) -> None:
    cursor = Anchor(id, included).cursor()
    assert parse_cursor(cursor) == Anchor(id, included)
    assert re.fullmatch(r"[A-Za-z0-9_-]+", cursor)


def test_the_running_turn_is_not_the_last_one_of_a_file_that_says_nothing_of_it(tmp_path: Path) -> None:
    """Its message came as an item that was cut, or it has no message, or the file's last turn has an end."""
    words = UserMessage("u", (TextInput(text="question 1"),))
    cut = TurnRecord(id="live", items=(EndedItem(words, 1, 2, cut=True),))
    for live in (cut, running("live", AgentMessage("m", ("hi",))), running("live")):
        with open_history(old_file(tmp_path / "r", 2), THREAD, TurnIndexes(), live) as history:
            assert len(history.all_turns()) == 3
    ended = stored(
        tmp_path / "ended", {"type": "user_message", "message": "question 1"}, {"type": "task_complete"}
    )
    with open_history(ended, THREAD, TurnIndexes(), running("live", words)) as history:
        assert len(history.all_turns()) == 2
    with open_history(stored(tmp_path / "empty"), THREAD, TurnIndexes(), running("live", words)) as history:
        assert len(history.all_turns()) == 1


def test_a_review_that_runs_is_found_in_a_file_without_identity(tmp_path: Path) -> None:
    path = stored(tmp_path / "r", {"type": "entered_review_mode", "prompt": "p", "user_facing_hint": "h"})
    live = TurnRecord(id="live", items=(EndedItem(EnteredReview("e", "p", "h"), 1, 2),))
    with open_history(path, THREAD, TurnIndexes(), live) as history:
        assert history.all_turns() == (live,)
