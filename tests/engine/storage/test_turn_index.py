"""The index of the turns of a file: its entries, and when it is rebuilt."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest

from app_server.engine.storage import turn_index
from app_server.engine.storage.decode import RolloutDecoder
from app_server.engine.storage.line_reader import raw_lines
from app_server.engine.storage.pagination import TurnCut, TurnNotFound
from app_server.engine.storage.record import REVERTED, RawLine, RevertedRanges, read_record
from app_server.engine.storage.reverts import LOOKS_BACK, counting_lines, find_reverts
from app_server.engine.storage.turn_index import (
    SAMPLE_BYTES,
    TurnIndex,
    TurnIndexes,
    TurnPlaces,
    find_cut,
)
from app_server.engine.support.engine_errors import ConversationError, RolloutUnreadable
from app_server_protocol.encoding import Json
from app_server_protocol.engine.items import ImageView, item_to_value

THREAD = "01a1fc2e-450f-7ed0-9b52-64722a96c4dc"
META: Json = {"line": "session_meta", "id": THREAD}


def encoded(payload: Json) -> bytes:
    """Return a line of a rollout. `line` is its kind if it is no event."""
    fields = {key: value for key, value in payload.items() if key != "line"}
    record = {"timestamp": "t", "type": payload.get("line", "event_msg"), "payload": fields}
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"


def begin(id: str, **more: Json) -> Json:
    return {"type": "task_started", "turn_id": id, **more}


def end(id: str) -> Json:
    return {"type": "task_complete", "turn_id": id}


def said(text: str = "hi", **more: Json) -> Json:
    return {"type": "user_message", "message": text, "images": [], **more}


def image(id: str, turn_id: str) -> Json:
    return {"type": "turn_item", "turn_id": turn_id, "item": item_to_value(ImageView(id, "/x.png"))}


def reverted(keeps: int) -> Json:
    return {"type": REVERTED, "num_turns": 1, "kept_lines": keeps}


def words_before(text: str, role: str = "user") -> Json:
    """Return an entry of the model's history."""
    part = {"type": "input_text", "text": text}
    return {"line": "response_item", "type": "message", "role": role, "content": [part]}


def raw(*payloads: Json, after: TurnIndex | None = None) -> Iterator[RawLine]:
    number, place = (0, 0) if after is None else (after.lines, after.size)
    for payload in payloads:
        data = encoded(payload)
        yield RawLine(number, place, place + len(data), data[:-1])
        number, place = number + 1, place + len(data)


def indexed(*payloads: Json) -> TurnIndex:
    index = TurnIndex.empty(THREAD)
    for line in raw(*payloads):
        index.take(line)
    return index


class File:
    """Rollout that grows."""

    def __init__(self, path: Path, *payloads: Json) -> None:
        self.path = path
        path.write_bytes(b"".join(map(encoded, payloads)))

    def append(self, *payloads: Json, torn: int = 0) -> Self:
        """Append lines, without the last `torn` bytes."""
        data = b"".join(map(encoded, payloads))
        with self.path.open("ab") as file:
            file.write(data[: len(data) - torn])
        return self

    def places(self, indexes: TurnIndexes, conversation_id: str = THREAD) -> TurnPlaces:
        fd = os.open(self.path, os.O_RDONLY)
        try:
            return indexes.of(fd, conversation_id)
        finally:
            os.close(fd)


def ids(found: TurnPlaces) -> list[str]:
    return [place.id for place in found.places]


# --- the entries
def test_a_place_is_from_the_first_line_that_tells_of_the_turn_to_behind_the_last_one() -> None:
    lines = [
        META,
        begin("a"),
        image("i", "a"),
        words_before("x"),
        end("a"),
        META,
        begin("b"),
        image("j", "b"),
    ]
    index = indexed(*lines)
    sizes = [len(encoded(line)) for line in lines]
    first, second = index.places
    assert (first.id, first.number, first.begin, first.end) == ("a", 1, sizes[0], sum(sizes[:5]))
    assert (second.id, second.number, second.begin, second.end) == ("b", 6, sum(sizes[:6]), sum(sizes))
    assert (first.items, second.items) == (["i"], ["j"])
    assert (index.lines, index.size) == (8, sum(sizes))


def test_the_state_of_a_place_is_as_it_was_before_the_turn() -> None:
    first, second = indexed(META, begin("a"), begin("b")).places
    assert not first.state.explicit
    assert second.state.explicit, "turn a is open there"


def test_only_a_turn_without_a_line_for_its_begin_is_implicit() -> None:
    explicit, implicit = indexed(begin("a"), end("a"), said()).places
    assert (explicit.implicit, implicit.implicit) == (False, True)


def test_items_have_ids_that_are_unique_in_the_conversation() -> None:
    index = indexed(begin("a"), image("i", "a"), image("i", "a"), begin("b"), image("i", "b"))
    assert [place.items for place in index.places] == [["i", "i-2"], ["i-3"]]
    assert index.ids.begin("i") == "i-4"


def test_a_turn_that_is_named_late_has_both_names() -> None:
    index = indexed(META, said(), begin("a", late=True), image("i", "a"))
    [place] = index.places
    assert (place.id, place.names, place.implicit, len(place.items)) == ("a", ("a",), False, 2)
    assert place.number == 1
    assert place.end == index.size


def test_a_turn_cannot_take_the_name_of_another_one() -> None:
    index = indexed(begin("a"), end("a"), said(), begin("a", late=True))
    first, second = index.places
    assert (first.id, first.names) == ("a", ())
    assert second.id != "a"
    assert (second.names, second.implicit, second.end) == ((), True, index.size)


def test_a_late_name_of_an_unknown_turn_changes_nothing() -> None:
    index = indexed(begin("a", late=True), begin("b", late=True))
    assert [(place.id, place.names) for place in index.places] == [("b", ("b",))]


# --- the end of the file
def test_the_end_of_the_file_ends_a_turn_and_the_index_goes_on() -> None:
    index = indexed(META, begin("a"), image("i", "a"))
    [place] = index.closed(())
    assert (place.to_the_end, place.end, place.items) == (True, index.size, ["i"])
    assert [each.to_the_end for each in index.places] == [False]
    for line in raw(image("j", "a"), end("a"), after=index):
        index.take(line)
    [place] = index.closed(())
    assert (place.to_the_end, place.items) == (False, ["i", "j"])


def test_a_last_line_without_an_end_counts_until_it_is_written_on() -> None:
    index = indexed(META, begin("a"), image("i", "a"))
    [rest] = raw(image("i", "a"), after=index)
    [place] = index.closed([rest])
    assert (place.items, place.end) == (["i", "i-2"], rest.end)
    assert index.places[0].items == ["i"]
    assert index.ids.begin("i") == "i-2"
    assert index.lines == rest.number


def test_reasoning_at_the_end_of_the_file_is_an_item() -> None:
    index = indexed(begin("a"), {"type": "agent_reasoning", "text": "x", "item_id": "r", "turn_id": "a"})
    assert [place.items for place in index.places] == [[]]
    assert [(place.items, place.to_the_end) for place in index.closed(())] == [(["r"], True)]


def test_a_closed_index_is_its_own_where_a_turn_was_named_late() -> None:
    index = indexed(said())
    [rest] = raw(begin("a", late=True), after=index)
    [place] = index.closed([rest])
    assert (place.id, index.places[0].id != "a") == ("a", True)
    assert index.places[0].names == ()


# --- reverted lines
def test_lines_that_were_taken_back_keep_their_ids_and_have_no_places() -> None:
    reverted_lines = RevertedRanges()
    assert reverted_lines.take(reverted(1), 4)
    index = TurnIndex.empty(THREAD, reverted_lines)
    for line in raw(META, begin("a"), image("i", "a"), end("a"), reverted(1), begin("b"), image("i", "b")):
        index.take(line)
    [place] = index.places
    assert (place.id, place.items, place.number) == ("b", ["i-2"], 5)
    assert index.lines == 7


def test_a_turn_that_was_taken_back_is_taken_back_from_the_file(tmp_path: Path) -> None:
    file, indexes = File(tmp_path / "r", META, begin("a"), end("a"), begin("b"), end("b")), TurnIndexes()
    assert ids(file.places(indexes)) == ["a", "b"]
    file.append(reverted(3))
    found = file.places(indexes)
    assert ids(found) == ["a"]
    assert [number for number in range(7) if number in found.reverted_lines] == [3, 4, 5]
    file.append(begin("c"), image("i", "c"))
    found = file.places(indexes)
    assert ids(found) == ["a", "c"]
    assert [number for number in range(9) if number in found.reverted_lines] == [3, 4, 5], "it is still known"
    file.append(reverted(1))
    assert ids(file.places(indexes)) == []


def test_a_torn_line_takes_nothing_back(tmp_path: Path) -> None:
    file = File(tmp_path / "r", META, begin("a"), end("a")).append(reverted(1), torn=1)
    assert ids(file.places(TurnIndexes())) == ["a"]


def test_only_such_lines_take_others_back() -> None:
    def found(*payloads: Json, known: RevertedRanges | None = None) -> RevertedRanges | None:
        return find_reverts(raw(META, begin("a"), *payloads), known or RevertedRanges(), fd=-1)

    assert found() is None
    assert found(said(REVERTED), words_before(REVERTED)) is None
    assert found({"line": "response_item", **reverted(1)}) is None
    one = found(reverted(1))
    assert one is not None
    assert [number in one for number in range(4)] == [False, True, True, False]
    before = RevertedRanges()
    before.take(reverted(1), 2)
    both = found(said(), said(), reverted(3), known=before)
    assert both is not None
    assert [number in both for number in range(6)] == [False, True, True, True, True, False]
    assert 3 not in before, "what was handed in stays as it is"


def test_lines_that_count_are_those_that_were_not_taken_back(tmp_path: Path) -> None:
    file = File(tmp_path / "r", META, begin("a"), end("a"), reverted(1), begin("b"))
    with file.path.open("rb") as opened:
        assert [line.number for line in counting_lines(opened.fileno())] == [0, 4]


# --- lines


def test_an_event_that_is_damaged_tells_of_no_turn() -> None:
    damaged = encoded(begin("a")).replace(b'"a"', b"a")
    assert read_record(damaged[:-1]) is None
    lacking = read_record(encoded(begin("a")).replace(b'"type":"task_started"', b'"type":"turn_item"')[:-1])
    assert lacking is not None
    assert RolloutDecoder(THREAD).take(1, lacking) == []


# --- indexes of several files
def test_an_index_is_continued_only_with_the_lines_that_are_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, indexes = File(tmp_path / "r", META, begin("a"), image("i", "a")), TurnIndexes()
    file.places(indexes)
    taken: list[int] = []
    take = TurnIndex.take

    def counted(index: TurnIndex, line: RawLine) -> None:
        taken.append(line.number)
        take(index, line)

    monkeypatch.setattr(TurnIndex, "take", counted)
    assert ids(file.places(indexes)) == ["a"]
    assert taken == []
    [place] = file.append(image("i", "a"), end("a")).places(indexes).places
    assert (taken, place.items) == ([3, 4], ["i", "i-2"])
    assert ids(file.places(TurnIndexes())) == ["a"]
    assert taken == [3, 4, 0, 1, 2, 3, 4]


@pytest.mark.parametrize("at", [5, -5], ids=["begin", "end"])
def test_a_file_whose_begin_or_end_changed_is_another_file(tmp_path: Path, at: int) -> None:
    file = File(tmp_path / "r", META, begin("a"), *[end("a")] * 40, begin("b"))
    indexes, data = TurnIndexes(), bytearray(file.path.read_bytes())
    assert len(data) > 2 * SAMPLE_BYTES
    assert ids(file.places(indexes)) == ["a", "b"]
    with file.path.open("r+b") as opened:  # the same file, with another turn in the middle of it
        opened.write(data.replace(b'"b"', b'"c"', 1))
        opened.seek(at, os.SEEK_SET if at > 0 else os.SEEK_END)
        opened.write(b"X")
    assert "b" not in ids(file.places(indexes))


def test_a_file_that_shrank_or_belongs_to_another_conversation_is_read_anew(tmp_path: Path) -> None:
    file, indexes = File(tmp_path / "r", META, said()), TurnIndexes()
    [before] = ids(file.places(indexes))
    [other] = ids(file.places(indexes, "01a1fc2e-0000-7ed0-9b52-64722a96c4dc"))
    assert before != other
    assert ids(file.places(indexes)) == [before]
    os.truncate(file.path, len(encoded(META)))
    assert ids(file.places(indexes)) == []


def test_the_indexes_that_were_used_last_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turn_index, "KEPT", 2)
    made: list[str] = []
    empty = TurnIndex.empty

    def counted(conversation_id: str, reverted_lines: RevertedRanges | None = None) -> TurnIndex:
        made.append(conversation_id)
        return empty(conversation_id, reverted_lines)

    monkeypatch.setattr(TurnIndex, "empty", counted)
    files = {name: File(tmp_path / name, META, begin("a")) for name in ("one", "two", "three")}
    indexes = TurnIndexes()
    for name in ("one", "two", "one", "three", "one", "three", "two"):
        files[name].places(indexes, name)
    assert made == ["one", "two", "three", "two"]


# --- cuts between turns
def cuts(path: Path, turn_id: str) -> tuple[TurnCut, TurnCut]:
    indexes = TurnIndexes()
    return find_cut(path, THREAD, indexes, turn_id, behind=False), find_cut(
        path, THREAD, indexes, turn_id, behind=True
    )


def test_a_thread_is_cut_before_and_behind_a_turn(tmp_path: Path) -> None:
    def words(turn: str) -> Json:
        return {"type": "user_message", "message": "w", "item_id": f"w-{turn}", "turn_id": turn}

    file = File(
        tmp_path / "r",
        META,
        *(begin("a"), words("a"), end("a")),
        *(begin("b"), end("b")),
        *(begin("c"), words("c")),
    )
    assert cuts(file.path, "a") == (TurnCut(1, 2), TurnCut(4, 1)), "turns in which the user said something"
    assert cuts(file.path, "b") == (TurnCut(4, 1), TurnCut(6, 1))
    assert cuts(file.path, "c") == (TurnCut(6, 1), TurnCut(None, 0))


def test_a_thread_cannot_be_cut_at_an_unknown_turn(tmp_path: Path) -> None:
    file = File(tmp_path / "r", META, begin("a"))
    with pytest.raises(TurnNotFound, match=r"^turn not found: x{100}$"):
        find_cut(file.path, THREAD, TurnIndexes(), "x" * 150, behind=False)
    with pytest.raises(RolloutUnreadable, match=r"none: no such file or directory$") as error:
        find_cut(tmp_path / "none", THREAD, TurnIndexes(), "a", behind=True)
    assert isinstance(error.value, ConversationError)


ENVIRONMENT = "<environment_context>\n</environment_context>"


@pytest.mark.parametrize(
    ("before", "keeps"),
    [
        ([words_before(ENVIRONMENT)], 3),
        ([words_before(ENVIRONMENT), words_before(ENVIRONMENT)], 3),
        ([words_before("of the turn before")], 4),
        ([words_before(ENVIRONMENT), words_before("of the turn before")], 5),
        ([words_before(ENVIRONMENT, role="assistant")], 4),
        ([{**words_before(ENVIRONMENT), "type": "other"}], 4),
        ([{**words_before(ENVIRONMENT), "line": "compacted"}], 4),
        ([{**words_before(ENVIRONMENT), "content": "text"}], 4),
        ([{**words_before(""), "content": [5, {"text": 5}, {"text": ENVIRONMENT}]}], 3),
        ([words_before(ENVIRONMENT)] * (LOOKS_BACK + 1), 4),
    ],
)
def test_new_surroundings_belong_to_the_turn_behind_them(
    tmp_path: Path, before: list[Json], keeps: int
) -> None:
    file = File(tmp_path / "r", META, begin("a"), end("a"), *before, begin("b"))
    assert find_cut(file.path, THREAD, TurnIndexes(), "b", behind=False).keeps == keeps


def test_in_a_file_without_identity_the_words_of_the_user_belong_to_the_turn_behind_them(
    tmp_path: Path,
) -> None:
    file = File(
        tmp_path / "r",
        META,
        said("one"),
        words_before("not of the turn"),
        words_before(ENVIRONMENT),
        words_before("two"),
        said("two"),
    )
    _, second = file.places(TurnIndexes()).places
    assert find_cut(file.path, THREAD, TurnIndexes(), second.id, behind=False).keeps == 3
    file = File(tmp_path / "other", META, said("one"), words_before("x"), words_before("two"), said("two"))
    _, second = file.places(TurnIndexes()).places
    assert find_cut(file.path, THREAD, TurnIndexes(), second.id, behind=False).keeps == 3


def test_the_first_line_of_a_file_is_always_kept(tmp_path: Path) -> None:
    lines = [words_before(ENVIRONMENT)] * 3
    file = File(tmp_path / "r", *lines, begin("a"))
    assert find_cut(file.path, THREAD, TurnIndexes(), "a", behind=False).keeps == 1


def test_lines_are_read_from_any_place_to_any_place(tmp_path: Path) -> None:
    file = File(tmp_path / "r", META, begin("a")).append(end("a"), torn=3)
    first, second, third = map(encoded, (META, begin("a"), end("a")))
    with file.path.open("rb") as opened:
        size = os.fstat(opened.fileno()).st_size
        found = list(raw_lines(opened.fileno(), 1, len(first), size))
        assert found == [
            RawLine(1, len(first), len(first + second), second[:-1]),
            RawLine(2, len(first + second), size, third[:-3], whole=False),
        ]
        assert list(raw_lines(opened.fileno(), 0, 0, len(first))) == [RawLine(0, 0, len(first), first[:-1])]
        assert list(raw_lines(opened.fileno(), 0, 0, 0)) == []
