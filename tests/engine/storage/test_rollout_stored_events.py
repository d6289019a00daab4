"""The lines that a rollout stores for an event, without identity (as codex 0.58 does) and with it."""

import json
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app_server.engine.storage import encode
from app_server.engine.storage.stored_item_lines import TURN_ITEM
from app_server_protocol.encoding import Json
from app_server_protocol.engine import events, items
from app_server_protocol.engine.errors import ErrorClass, TurnError
from app_server_protocol.engine.events import TurnAbortReason
from app_server_protocol.engine.legacy import legacy_event
from app_server_protocol.engine.notices import ProgressNotice, TokenUsageUpdated, UndoCompleted
from app_server_protocol.event_items import ImageInput, TextInput
from app_server_protocol.values import replace

TIMES = {"started_at_ms": 5, "completed_at_ms": 9}
HELLO = items.UserMessage("u", (TextInput(text="hello"),))


def lines(event: events.EngineEvent, *, identity: bool, turn_id: str | None = "t") -> list[Json]:
    return [
        json.loads(line.to_json())
        for line in encode.stored_events(events.SessionEvent("op", turn_id, event), identity=identity)
    ]


def completed(item: items.Item, *, cut: bool = False, announced: bool = True) -> events.ItemCompleted:
    return events.ItemCompleted(item, 5, 9, cut, announced)


# --- items
@pytest.mark.parametrize(
    ("item", "older"),
    [
        (HELLO, [{"type": "user_message", "message": "hello", "images": []}]),
        (items.AgentMessage("m", ("hi",)), [{"type": "agent_message", "message": "hi"}]),
        (
            items.Reasoning("r", ("one", "two"), ("raw",)),
            [{"type": "agent_reasoning", "text": "one"}, {"type": "agent_reasoning", "text": "two"}],
        ),
        (
            items.Reasoning("r", ("one",), ("raw",), show_content=True),
            [
                {"type": "agent_reasoning", "text": "one"},
                {"type": "agent_reasoning_raw_content", "text": "raw"},
            ],
        ),
        (
            items.EnteredReview("e", "look", "the changes"),
            [{"type": "entered_review_mode", "prompt": "look", "user_facing_hint": "the changes"}],
        ),
        (items.ExitedReview("x", None), [{"type": "exited_review_mode", "review_output": None}]),
        (items.ContextCompaction("c"), [{"type": "agent_message", "message": "Compact task completed"}]),
        (items.ImageView("i", "/x.png"), []),
        (items.Plan("p", "do it"), []),
    ],
)
def test_without_identity_there_are_the_events_of_codex_058_alone(
    item: items.Item, older: list[Json]
) -> None:
    assert lines(completed(item), identity=False) == older


def test_an_item_that_was_cut_is_stored_with_identity_only() -> None:
    cut = completed(items.AgentMessage("m", ("half",)), cut=True)
    assert lines(cut, identity=False) == []
    [line] = lines(cut, identity=True)
    assert (line["type"], line["cut"], line["turn_id"]) == (TURN_ITEM, True, "t")
    assert items.item_from_value(line["item"]) == items.AgentMessage("m", ("half",))


def test_words_that_joined_a_turn_are_no_event_of_codex_058() -> None:
    assert lines(completed(HELLO, announced=False), identity=False) == []
    assert [line["message"] for line in lines(completed(HELLO, announced=False), identity=True)] == ["hello"]
    reply = completed(items.AgentMessage("m", ("hi",)), announced=False)
    assert [line["message"] for line in lines(reply, identity=False)] == ["hi"]


@pytest.mark.parametrize(
    "item",
    [
        HELLO,
        items.AgentMessage("m", ("hi",)),
        items.Reasoning("r", ("one", "two")),
    ],
)
def test_identity_is_beside_older_events_that_hold_the_whole_item(item: items.Item) -> None:
    older = lines(completed(item), identity=False)
    identified = [{**line, "turn_id": "t", "item_id": item.id, **TIMES} for line in older]
    assert lines(completed(item), identity=True) == identified


def test_the_phase_of_a_message_is_beside_it() -> None:
    [line] = lines(completed(items.AgentMessage("m", ("hi",), "final_answer")), identity=True)
    assert line["phase"] == "final_answer"
    [line] = lines(completed(items.AgentMessage("m", ("hi",))), identity=True)
    assert "phase" not in line


@pytest.mark.parametrize(
    "item",
    [
        replace(HELLO, client_id="mine"),
        replace(HELLO, sent=(TextInput(text="as it was sent"),)),
        items.UserMessage("u", (TextInput(text="a"), TextInput(text="b"))),
        items.UserMessage("u", (ImageInput(image_url="data:x"),)),
        items.Reasoning("r", ("one",), ("raw",)),
        items.Reasoning("r", ("one",), ("raw",), show_content=True),
        items.Reasoning("r", ("one",), (), show_content=True),
        items.AgentMessage("m", ()),
        items.AgentMessage("m", ("one", "two")),
        items.EnteredReview("e", "look", "hint"),
        items.ExitedReview("x", None),
        items.ContextCompaction("c"),
        items.ImageView("i", "/x.png"),
    ],
)
def test_an_item_that_older_events_do_not_hold_whole_has_a_line_of_its_own_behind_them(
    item: items.Item,
) -> None:
    older = lines(completed(item), identity=False)
    *before, whole = lines(completed(item), identity=True)
    assert before == [{**line, "item_id": item.id} for line in older]
    assert items.item_from_value(whole.pop("item")) == item
    assert whole.pop("cut", False) is False
    assert whole == {"type": TURN_ITEM, "turn_id": "t", **TIMES}


def test_what_only_begins_or_runs_is_not_stored() -> None:
    for event in (events.ItemStarted(HELLO, 5), ProgressNotice(message="x")):
        assert lines(event, identity=True) == lines(event, identity=False) == []


# --- output of commands
@given(st.text(max_size=300), st.integers(encode.MARKER_ROOM, 200))
@example("x" * (encode.MARKER_ROOM + 1), encode.MARKER_ROOM)
def test_long_text_is_capped_to_its_head_and_tail(text: str, cap: int) -> None:
    short = encode.capped(text, cap)
    assert len(short) <= cap
    if len(text) <= cap:
        assert short == text
        return
    found = re.search(r"\n\[… (\d+) characters left out …\]\n", short)
    assert found is not None
    head, tail = short[: found.start()], short[found.end() :]
    assert text.startswith(head)
    assert text.endswith(tail)
    assert len(head) == len(tail) == (cap - encode.MARKER_ROOM) // 2
    assert len(head) + int(found[1]) + len(tail) == len(text)


def test_of_a_command_the_output_is_kept_once() -> None:
    item = items.CommandExecution(
        id="c",
        command=("ls",),
        cwd="/",
        parsed=(),
        stdout="out",
        stderr="err",
        output="o" * encode.OUTPUT_CAP,
        shown_output="shown",
        exit_code=3,
    )
    assert encode.kept_item(item) == replace(item, stdout="", stderr="", shown_output="")
    assert encode.kept_item(HELLO) is HELLO
    [line] = lines(completed(item), identity=True)
    assert line["item"] == items.item_to_value(encode.kept_item(item))
    assert lines(completed(item), identity=False) == []


# --- turns
def test_the_begin_of_a_turn() -> None:
    started = events.TurnStarted(events.TurnKind.REVIEW, 1000, 12.75)
    line = {
        "type": "task_started",
        "turn_id": "t",
        "started_at": 12,
        "model_context_window": 1000,
        "kind": "review",
    }
    assert lines(started, identity=True) == [line]
    assert lines(started, identity=False) == []
    assert json.loads(encode.turn_started_line("t", started).to_json()) == line


def ended(status: events.TurnStatus, **more: Json) -> events.TurnEnded:
    return events.TurnEnded(
        **{"status": status, "started_at": 12.75, "ended_at": 15.5, "seconds": 2.7504, **more}
    )


TURN_TIMES = {"turn_id": "t", "started_at": 12, "completed_at": 15, "duration_ms": 2750}


def test_the_end_of_a_turn() -> None:
    done = ended(events.TurnStatus.COMPLETED, last_agent_message="bye")
    assert lines(done, identity=False) == []
    assert lines(done, identity=True) == [
        {"type": "task_complete", "last_agent_message": "bye", **TURN_TIMES}
    ]


def test_the_error_of_a_turn_that_failed() -> None:
    failed = ended(events.TurnStatus.FAILED, error=TurnError("no", ErrorClass.BAD_REQUEST, 400, "why"))
    assert lines(failed, identity=False) == []
    error = {
        "message": "no",
        "codex_error_info": "bad_request",
        "class": "bad_request",
        "http_status": 400,
        "details": "why",
    }
    assert lines(failed, identity=True) == [
        {"type": "task_complete", "last_agent_message": None, **TURN_TIMES, "error": error}
    ]


def test_an_interrupted_turn_is_the_only_end_that_codex_058_stores() -> None:
    stopped = ended(
        events.TurnStatus.INTERRUPTED, reason=TurnAbortReason.REPLACED, started_at=None, seconds=None
    )
    line = {"type": "turn_aborted", "reason": "replaced"}
    assert lines(stopped, identity=False) == [line]
    times = {"turn_id": "t", "started_at": None, "completed_at": 15, "duration_ms": None}
    assert lines(stopped, identity=True) == [{**line, **times}]


# --- lines without an item
@pytest.mark.parametrize("event", [TokenUsageUpdated(), UndoCompleted(success=True, message="done")])
def test_counts_and_undos_are_stored_as_legacy_events(event: TokenUsageUpdated | UndoCompleted) -> None:
    assert lines(event, identity=False) == [legacy_event(event).to_value()]
    assert lines(event, identity=True) == [{**legacy_event(event).to_value(), "turn_id": "t"}]
