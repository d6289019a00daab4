"""Stored lines as events: lines with identity, and derived values for lines without it."""

import uuid
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.engine.storage.decode import RolloutDecoder
from app_server.engine.storage.turn_edges import derived_id
from app_server.engine.storage.turn_fold import TurnFold
from app_server_protocol.encoding import Json
from app_server_protocol.engine.errors import ErrorClass, TurnError
from app_server_protocol.engine.events import (
    EngineEvent,
    ItemCompleted,
    SessionEvent,
    TurnEnded,
    TurnKind,
    TurnRenamed,
    TurnStarted,
    TurnStatus,
)
from app_server_protocol.engine.item_values import ReviewOutputEvent
from app_server_protocol.engine.items import (
    AgentMessage,
    ContextCompaction,
    EnteredReview,
    ExitedReview,
    ImageView,
    Item,
    Reasoning,
    UserMessage,
    item_to_value,
)
from app_server_protocol.event_items import ImageInput, TextInput
from app_server_protocol.parse import read
from app_server_protocol.values import replace
from tests.engine.storage.stored import Line, taken, turn_events

THREAD = "01a1fc2e-450f-7ed0-9b52-64722a96c4dc"


def derived(what: str, number: int) -> str:
    return str(uuid.uuid5(uuid.UUID(THREAD), f"{what} {number}"))


def events(*payloads: Json) -> list[SessionEvent | TurnRenamed]:
    return turn_events(THREAD, event_lines(*payloads))


def event_lines(*payloads: Json) -> list[Line]:
    """Return the lines of these payloads. The value of `line` is the kind of the line."""
    return [
        (number, payload.get("line", "event_msg"), {k: v for k, v in payload.items() if k != "line"})
        for number, payload in enumerate(payloads)
    ]


def read_by(reader: RolloutDecoder, *payloads: Json) -> list[SessionEvent | TurnRenamed]:
    return taken(reader, event_lines(*payloads))


def in_turns(found: Sequence[SessionEvent | TurnRenamed]) -> list[tuple[str | None, EngineEvent]]:
    """Return the events with the ids of their turns."""
    return [(event.turn_id, event.event) for event in found if isinstance(event, SessionEvent)]


def items(found: Sequence[SessionEvent | TurnRenamed]) -> list[Item]:
    return [event.item for _, event in in_turns(found) if isinstance(event, ItemCompleted)]


def turn_ids(found: Sequence[SessionEvent | TurnRenamed]) -> list[str | None]:
    return [turn_id for turn_id, event in in_turns(found) if isinstance(event, TurnStarted)]


BEGIN = {"type": "task_started", "turn_id": "t", "started_at": 5, "kind": "review"}
SAID = {"type": "user_message", "message": "hi", "images": []}
CLOSED = TurnEnded(status=TurnStatus.COMPLETED, started_at=None, ended_at=0.0, seconds=None)


# --- turns


def test_times_kinds_and_ids_that_a_line_does_not_say() -> None:
    begin: Json = {"type": "task_started", "turn_id": 5, "started_at": True, "kind": "novel"}
    assert events(begin, {"type": "task_complete", "duration_ms": "1"}) == [
        SessionEvent("", derived("turn", 0), TurnStarted(TurnKind.REGULAR, None, 0.0)),
        SessionEvent("", derived("turn", 0), CLOSED),
    ]


@pytest.mark.parametrize(
    ("error", "read"),
    [
        (
            {"message": "no", "class": "bad_request", "http_status": 400, "details": "why"},
            TurnError("no", ErrorClass.BAD_REQUEST, 400, "why"),
        ),
        ({"message": "no"}, TurnError("no")),
        (
            {"message": "no", "class": "novel", "http_status": "400", "details": 5},
            TurnError("no", None, None, None),
        ),
    ],
)
def test_a_turn_with_an_error_has_failed(error: Json, read: TurnError) -> None:
    [_, (_, ended)] = in_turns(events(BEGIN, {"type": "task_complete", "error": error}))
    assert isinstance(ended, TurnEnded)
    assert (ended.status, ended.error) == (TurnStatus.FAILED, read)


@pytest.mark.parametrize("error", [None, "no", {"message": 5}, {"class": "bad_request"}])
def test_what_is_no_error_fails_no_turn(error: Json) -> None:
    [_, (_, ended)] = in_turns(events(BEGIN, {"type": "task_complete", "error": error}))
    assert isinstance(ended, TurnEnded)
    assert (ended.status, ended.error) == (TurnStatus.COMPLETED, None)


@pytest.mark.parametrize("reason", ["replaced", "novel", None])
def test_a_turn_was_interrupted_for_whatever_reason(reason: Json) -> None:
    [_, (turn_id, ended)] = in_turns(events(BEGIN, {"type": "turn_aborted", "reason": reason}))
    assert isinstance(ended, TurnEnded)
    assert (turn_id, ended.status) == ("t", TurnStatus.INTERRUPTED)


def test_a_turn_that_the_file_does_not_end() -> None:
    [_, (_, explicit)] = in_turns(events(BEGIN))
    assert explicit == replace(CLOSED, status=TurnStatus.INTERRUPTED, started_at=5.0)
    [_, _, (_, implicit)] = in_turns(events(SAID))
    assert implicit == CLOSED


def test_the_next_begin_ends_a_turn_that_has_no_end() -> None:
    found = in_turns(events(BEGIN, {**BEGIN, "turn_id": "next"}, {"type": "task_complete"}))
    assert [(turn_id, type(event)) for turn_id, event in found] == [
        ("t", TurnStarted),
        ("t", TurnEnded),
        ("next", TurnStarted),
        ("next", TurnEnded),
    ]


def test_a_begin_that_is_stored_twice_is_one() -> None:
    assert turn_ids(events(BEGIN, BEGIN)) == ["t"]


def test_an_end_outside_of_turns_ends_nothing() -> None:
    assert events({"type": "task_complete"}) == []
    [aborted] = events({"type": "turn_aborted", "reason": "interrupted"})
    assert isinstance(aborted, SessionEvent)
    assert aborted.turn_id is None, "only the conversation API shows it"
    [(turn_id, _)] = in_turns(events({"type": "task_complete", "turn_id": "gone"}))
    assert turn_id == "gone"


def test_a_turn_is_over_with_its_end() -> None:
    found = events(BEGIN, {"type": "task_complete"}, {"type": "agent_message", "message": "late"})
    assert turn_ids(found) == ["t", derived("turn", 2)]


def test_a_late_begin_names_the_turn_that_is_open() -> None:
    late = {**BEGIN, "late": True}
    renamed, *rest = events(SAID, late, {"type": "task_complete"})[2:]
    assert renamed == TurnRenamed(derived("turn", 0), "t")
    assert [(turn_id, type(event)) for turn_id, event in in_turns(rest)] == [("t", TurnEnded)]
    assert turn_ids(events(late)) == ["t"], "no turn is open: it begins one"
    [*_, (turn_id, ended)] = in_turns(events(SAID, late))
    assert isinstance(ended, TurnEnded)
    assert (turn_id, ended.status) == ("t", TurnStatus.INTERRUPTED), "a turn with a begin needs an end"


# --- items of older events
def test_words_of_the_user_begin_a_turn_where_no_begin_is_stored() -> None:
    found = events(SAID, {"type": "agent_message", "message": "yes"}, SAID)
    assert in_turns(found) == [
        (derived("turn", 0), TurnStarted(TurnKind.REGULAR, None, 0.0)),
        (
            derived("turn", 0),
            ItemCompleted(UserMessage(derived("item", 0), (TextInput(text="hi"),)), 0, 0),
        ),
        (derived("turn", 0), ItemCompleted(AgentMessage(derived("item", 1), ("yes",)), 0, 0)),
        (derived("turn", 0), CLOSED),
        (derived("turn", 2), TurnStarted(TurnKind.REGULAR, None, 0.0)),
        (
            derived("turn", 2),
            ItemCompleted(UserMessage(derived("item", 2), (TextInput(text="hi"),)), 0, 0),
        ),
        (derived("turn", 2), CLOSED),
    ]


def test_words_of_the_user_join_a_turn_with_a_stored_begin() -> None:
    found = events(BEGIN, SAID, SAID, {"type": "entered_review_mode"})
    assert turn_ids(found) == ["t"]
    assert [type(item) for item in items(found)] == [UserMessage, UserMessage, EnteredReview]


def test_a_review_begins_a_turn_of_its_kind() -> None:
    entered = {"type": "entered_review_mode", "prompt": "look", "user_facing_hint": "changes"}
    review = read(
        ReviewOutputEvent,
        {
            "findings": [],
            "overall_correctness": "patch is correct",
            "overall_explanation": "fine",
            "overall_confidence_score": 0.5,
        },
    )
    exited = {"type": "exited_review_mode", "review_output": review.to_value()}
    found = events(SAID, entered, exited)
    starts = [event for _, event in in_turns(found) if isinstance(event, TurnStarted)]
    assert [start.kind for start in starts] == [TurnKind.REGULAR, TurnKind.REVIEW]
    assert items(found)[1:] == [
        EnteredReview(derived("item", 1), "look", "changes"),
        ExitedReview(derived("item", 2), review),
    ]


def test_a_review_that_says_little() -> None:
    entered, exited = items(events({"type": "entered_review_mode"}, {"type": "exited_review_mode"}))
    assert entered == EnteredReview(derived("item", 0), "", "")
    assert exited == ExitedReview(derived("item", 1), None)


@pytest.mark.parametrize(
    ("payload", "content"),
    [
        ({"message": "hi"}, (TextInput(text="hi"),)),
        ({"message": ""}, (TextInput(text=""),)),
        ({"message": "", "images": ["data:x"]}, (ImageInput(image_url="data:x"),)),
        ({"message": "hi", "images": ["data:x", 5]}, (TextInput(text="hi"), ImageInput(image_url="data:x"))),
        ({"message": "hi", "images": "data:x"}, (TextInput(text="hi"),)),
    ],
)
def test_text_and_images_of_the_user(payload: Json, content: tuple[TextInput | ImageInput, ...]) -> None:
    [message] = items(events({"type": "user_message", **payload}))
    assert message == UserMessage(derived("item", 0), content)


@pytest.mark.parametrize("payload", [{"type": "user_message"}, {"type": "agent_message", "message": 5}])
def test_what_has_no_text_is_no_item(payload: Json) -> None:
    assert items(events(payload)) == []


def test_identity_beside_an_older_event() -> None:
    times = {"started_at_ms": 3, "completed_at_ms": 4.5}
    message = {"type": "agent_message", "message": "yes", "turn_id": "of", "item_id": "m", "phase": "p"}
    item = AgentMessage("m", ("yes",), "p")
    assert events(BEGIN, {**message, **times})[1:2] == [
        SessionEvent("", "of", ItemCompleted(item, 3, 4)),
    ]


@pytest.mark.parametrize(
    "older",
    [
        {"type": "agent_message", "message": "half"},
        {"type": "agent_reasoning", "text": "half"},
        SAID,
    ],
)
def test_an_older_event_of_an_item_that_follows_whole_is_passed_over(older: Json) -> None:
    whole = ImageView("i", "/x.png")
    line = {"type": "turn_item", "turn_id": "t", "item": item_to_value(whole)}
    assert items(events(BEGIN, {**older, "item_id": "i"}, line)) == [whole]


def test_a_whole_item_has_its_turn_its_times_and_whether_it_was_cut() -> None:
    item = ImageView("i", "/x.png")
    line = {"type": "turn_item", "item": item_to_value(item)}
    cut = {**line, "turn_id": "of", "started_at_ms": 3, "completed_at_ms": 4, "cut": True}
    found = events(BEGIN, line, cut, {**line, "cut": 1})
    assert [event for event in in_turns(found) if isinstance(event[1], ItemCompleted)] == [
        ("t", ItemCompleted(item, 0, 0)),
        ("of", ItemCompleted(item, 3, 4, cut=True, announced=False)),
        ("t", ItemCompleted(item, 0, 0)),
    ]
    for damaged in (None, {}, {"kind": "Novel"}, {"kind": "ImageView", "id": 5}):
        assert items(events(BEGIN, {**line, "item": damaged})) == []


def test_an_item_that_was_cut_begins_a_turn_where_a_crash_has_lost_the_begin() -> None:
    item = AgentMessage("m", ("so far",))
    older = {"type": "agent_message", "message": "so far", "item_id": "m"}
    line = {"type": "turn_item", "turn_id": None, "cut": True, "item": item_to_value(item)}
    found = events(older, line, {"type": "turn_aborted", "reason": "interrupted"}, SAID)
    assert items(found)[0] == item
    assert turn_ids(found) == [derived("turn", 1), derived("turn", 3)]
    assert [type(event) for _, event in in_turns(found)[:3]] == [TurnStarted, ItemCompleted, TurnEnded]
    [(_, named)] = in_turns(events({**line, "turn_id": "of"}))
    assert named == ItemCompleted(item, 0, 0, cut=True, announced=False), "a turn with a name needs no begin"


# --- reasoning
def part(text: str, *, raw: bool = False, **more: Json) -> Json:
    return {"type": "agent_reasoning_raw_content" if raw else "agent_reasoning", "text": text, **more}


def test_neighbouring_parts_are_one_reasoning() -> None:
    found = items(events(SAID, part("one"), part("raw", raw=True), part("two"), {**SAID, "message": "next"}))
    assert found[1] == Reasoning(derived("item", 1), ("one", "two"), ("raw",), show_content=True)
    assert isinstance(found[2], UserMessage)
    assert items(events(SAID, part("one")))[1] == Reasoning(derived("item", 1), ("one",))


def test_any_other_line_separates_two_reasonings() -> None:
    for other in ({"type": "token_count"}, {"line": "response_item", "type": "agent_reasoning"}):
        found = items(events(part("one"), other, part("two")))
        assert found == [
            Reasoning(derived("item", 0), ("one",)),
            Reasoning(derived("item", 2), ("two",)),
        ]


def test_another_id_or_other_times_separate_two_reasonings() -> None:
    def of(text: str, id: str, at: int) -> Json:
        return part(text, item_id=id, turn_id="t", started_at_ms=at, completed_at_ms=at + 1)

    found = in_turns(events(BEGIN, of("a", "r", 1), of("b", "r", 1), of("c", "q", 1), of("d", "q", 2)))
    assert [event for _, event in found if isinstance(event, ItemCompleted)] == [
        ItemCompleted(Reasoning("r", ("a", "b")), 1, 2),
        ItemCompleted(Reasoning("q", ("c",)), 1, 2),
        ItemCompleted(Reasoning("q", ("d",)), 2, 3),
    ]


def test_a_part_without_an_id_goes_on_with_the_reasoning_before() -> None:
    found = items(events(BEGIN, part("a", item_id="r", turn_id="t"), part("b"), {**part("c"), "text": 5}))
    assert found == [Reasoning("r", ("a", "b"))]


def test_reasoning_outside_of_a_turn_begins_one() -> None:
    found = events(part("one"))
    assert turn_ids(found) == [derived("turn", 0)]
    [_, _, (_, ended)] = in_turns(found)
    assert ended == CLOSED


# --- compactions
@pytest.mark.parametrize(
    "between",
    [
        [],
        [{"type": "token_count"}],
        [{"line": "response_item", "type": "message"}, {"type": "token_count"}, {"line": "turn_context"}],
    ],
)
def test_the_event_of_a_compaction_follows_it(between: list[Json]) -> None:
    told = {"type": "agent_message", "message": "Compact task completed"}
    found = items(events({"line": "compacted"}, *between, told, told))
    assert [type(item) for item in found] == [ContextCompaction, AgentMessage]


@pytest.mark.parametrize("other", [SAID, {"type": "something_else"}, BEGIN])
def test_an_event_between_separates_a_compaction_from_what_is_said(other: Json) -> None:
    told = {"type": "agent_message", "message": "Compact task completed"}
    found = items(events({"line": "compacted"}, other, told))
    assert type(found[-1]) is AgentMessage


def test_what_is_said_after_a_compaction_is_said() -> None:
    [message] = items(events({"line": "compacted"}, {"type": "agent_message", "message": "and now"}))
    assert message == AgentMessage(derived("item", 1), ("and now",))


# --- readers in the middle of a file
def test_a_copy_goes_on_alone() -> None:
    reader = RolloutDecoder(THREAD)
    read_by(reader, BEGIN, part("one", item_id="r", turn_id="t"))
    copy = reader.copy()
    assert copy.explicit
    read_by(copy, part("two"), part("raw", raw=True))
    assert items(list(copy.finish())) == [Reasoning("r", ("one", "two"), ("raw",), show_content=True)]
    assert items(list(reader.finish())) == [Reasoning("r", ("one",))]
    assert list(reader.finish()) == []


def test_a_reader_knows_whether_the_turn_began_with_a_line_of_its_own() -> None:
    reader = RolloutDecoder(THREAD)
    explicit = [reader.explicit]
    for payload in (SAID, BEGIN, {"type": "task_complete"}, SAID):
        read_by(reader, payload)
        explicit.append(reader.explicit)
    assert explicit == [False, False, True, True, False]


# --- derived ids
@given(st.uuids(), st.text(max_size=20))
def test_derived_ids_are_uuids_of_the_conversation(conversation: uuid.UUID, name: str) -> None:
    assert derived_id(str(conversation), name) == str(uuid.uuid5(conversation, name))


@given(st.text(max_size=20), st.text(max_size=20), st.text(max_size=20))
def test_an_id_that_is_no_uuid_has_derived_ids_of_its_own(one: str, other: str, name: str) -> None:
    first, second = derived_id(f"x{one}", name), derived_id(f"x{other}", name)
    assert uuid.UUID(first).version == 5
    assert (first == second) is (one == other)


@pytest.mark.parametrize(
    "number",
    [float("inf"), float("nan"), pytest.param(10**400, id="400 digits"), -1e300, True, "1"],
)
def test_times_that_are_none_end_nothing(number: Json) -> None:
    times = {"started_at": number, "completed_at": number, "duration_ms": number}
    fold = TurnFold()
    fold.apply_all(
        turn_events(
            THREAD,
            event_lines(
                {"type": "task_started", "turn_id": "t", **times},
                {
                    "type": "item_completed",
                    "turn_id": "t",
                    "item": item_to_value(AgentMessage("m", ("hi",))),
                    "started_at_ms": number,
                    "completed_at_ms": number,
                },
                {"type": "task_complete", "turn_id": "t", **times},
            ),
        )
    )
    [record] = fold.turns
    assert (record.started_at, record.ended_at, record.seconds) == (None, None, None)
