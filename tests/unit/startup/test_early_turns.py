"""Turns that are shown before the server is loaded are those that the server shows."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from app_server.apis.v2.turns import shown_turn
from app_server.core.rollout.plain_messages import NotPlain
from app_server.core.rollout.turn_index import TurnIndexes
from app_server.core.rollout.turn_pages import open_history
from app_server.startup.early_turns import early_turns
from protocol.base import Json
from protocol.engine.codec import item_to_value
from protocol.engine.items import CommandExecution, ExitedReview, ImageView, ItemStatus
from protocol.events.commands import ReadCommand
from protocol.events.review import ReviewOutputEvent
from protocol.v2.turn import TurnItemsView

THREAD = "01a1fc2e-450f-7ed0-9b52-64722a96c4dc"

ids = st.sampled_from(["a", "b", "c", "d"])
turn_ids = st.sampled_from(["t1", "t2", "t3"])
texts = st.sampled_from(["", "x", 'say "hi"', "Compact task completed", 'a{"timestamp":', "ü\u2028", 5, None])
times: st.SearchStrategy[Json] = st.sampled_from([0, 5, 1.5, -0.5, "5", True, None, 10**400, float("inf")])
images: st.SearchStrategy[Json] = st.sampled_from([None, [], ["data:x"], ["data:x", 5], "x"])
identity = {"turn_id": turn_ids, "item_id": ids, "started_at_ms": times, "completed_at_ms": times}
whole = st.sampled_from(
    [
        item_to_value(ImageView("a", "/p")),
        item_to_value(
            CommandExecution(
                id="c",
                command=("bash", "-lc", "cat a"),
                cwd="/srv",
                parsed=(ReadCommand(cmd="cat a", name="a", path="a"),),
                status=ItemStatus.COMPLETED,
                output="x" * 40_000,
                exit_code=0,
                seconds=0.25,
            )
        ),
        item_to_value(
            ExitedReview(
                "r",
                ReviewOutputEvent(
                    findings=(),
                    overall_correctness="",
                    overall_explanation="fine",
                    overall_confidence_score=1,
                ),
            )
        ),
        {"kind": "ImageView"},
        None,
    ]
)
errors: st.SearchStrategy[Json] = st.sampled_from(
    [None, {}, {"message": "no"}, {"message": "no", "class": "unauthorized", "http_status": 401}, "no"]
)


def event(kind: str, **fields: st.SearchStrategy[Json]) -> st.SearchStrategy[tuple[str, Json]]:
    payloads = st.fixed_dictionaries({"type": st.just(kind)}, optional=fields)
    return payloads.map(lambda payload: ("event_msg", payload))


spans = {"started_at": times, "completed_at": times, "duration_ms": times}
records: st.SearchStrategy[tuple[str, Json]] = st.one_of(
    event("task_started", turn_id=turn_ids, started_at=times),
    event("task_started", turn_id=turn_ids),
    event("task_complete", turn_id=turn_ids, error=errors, **spans),
    event("task_complete", turn_id=turn_ids),
    event("turn_aborted", turn_id=turn_ids, reason=st.just("interrupted"), **spans),
    event("user_message", message=texts, images=images, **identity),
    event("user_message", message=texts.filter(lambda text: isinstance(text, str))),
    event("agent_message", message=texts, phase=st.sampled_from(["final_answer", "x"]), **identity),
    event("agent_message", message=texts.filter(lambda text: isinstance(text, str))),
    event("agent_reasoning", text=texts, **identity),
    event("agent_reasoning", text=texts),
    event("agent_reasoning_raw_content", text=texts, **identity),
    event("turn_item", turn_id=turn_ids, item=whole, cut=st.booleans(), started_at_ms=times),
    event("token_count", info=st.none()),
    st.just(("response_item", {"type": "message", "role": "user", "content": []})),
    st.just(("turn_context", {"cwd": "/"})),
)
unusual: st.SearchStrategy[tuple[str, Json]] = st.one_of(
    st.just(("compacted", {"message": "x"})),
    event("entered_review_mode"),
    event("thread_rolled_back", kept_lines=st.just(1)),
    event("task_started", turn_id=turn_ids, late=st.just(True)),
)


def line(kind: str, payload: Json) -> bytes:
    return json.dumps(
        {"timestamp": "2026-01-01T00:00:00.000Z", "type": kind, "payload": payload}, separators=(",", ":")
    ).encode()


def both(content: bytes) -> tuple[list[Json] | None, list[Json]]:
    """What is shown early, if anything, and by the server."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"rollout-2026-01-01T00-00-00-{THREAD}.jsonl")
        path.write_bytes(content)
        try:
            early: list[Json] | None = early_turns(path, THREAD)
        except NotPlain:
            early = None
        with open_history(path, THREAD, TurnIndexes()) as history:
            turns = [shown_turn(turn, TurnItemsView.FULL) for turn in history.all_turns()]
    return early, [turn.to_value() for turn in turns]


def content_of(lines: Sequence[tuple[str, Json]]) -> bytes:
    meta = ("session_meta", {"id": THREAD})
    return b"".join(line(*each) + b"\n" for each in (meta, *lines))


@given(st.lists(records, max_size=14))
@settings(max_examples=400)
@example([("event_msg", {"type": "user_message", "message": "hi"})])
def test_turns_are_those_of_the_server(lines: list[tuple[str, Json]]) -> None:
    early, served = both(content_of(lines))
    if early is not None:
        assert early == served
        assert json.dumps(early) == json.dumps(served)  # also in the order of the fields


@given(st.lists(records, max_size=5), unusual, st.lists(records, max_size=5))
def test_what_is_unusual_is_left_to_the_server_or_shown_alike(
    before: list[tuple[str, Json]], one: tuple[str, Json], after: list[tuple[str, Json]]
) -> None:
    early, served = both(content_of([*before, one, *after]))
    assert early is None or early == served


@given(st.lists(records, max_size=4).map(content_of), st.data())
def test_damaged_files_are_shown_alike_or_left_to_the_server(content: bytes, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(content)))
    length = data.draw(st.integers(0, 40))
    early, served = both(content[:at] + content[at + length :])
    assert early is None or early == served


def test_a_thread_of_old_files_is_shown_early() -> None:
    lines: list[tuple[str, Json]] = [
        ("event_msg", {"type": "user_message", "message": "one", "images": []}),
        ("response_item", {"type": "message", "role": "assistant", "content": []}),
        ("event_msg", {"type": "agent_reasoning", "text": "hm"}),
        ("event_msg", {"type": "agent_reasoning", "text": "so"}),
        ("event_msg", {"type": "agent_message", "message": "two"}),
        ("event_msg", {"type": "token_count", "info": None}),
        ("event_msg", {"type": "user_message", "message": "three"}),
        ("event_msg", {"type": "turn_aborted", "reason": "interrupted"}),
    ]
    early, served = both(content_of(lines))
    assert early == served
    assert [len(turn["items"]) for turn in served] == [3, 1]


def test_a_thread_with_commands_is_shown_early() -> None:
    turn = {"turn_id": "t1"}
    command = CommandExecution(id="c", command=("ls",), cwd="/", parsed=(), status=ItemStatus.COMPLETED)
    lines: list[tuple[str, Json]] = [
        ("event_msg", {"type": "task_started", **turn, "started_at": 5}),
        ("event_msg", {"type": "user_message", "message": "go", **turn, "item_id": "u"}),
        ("event_msg", {"type": "turn_item", **turn, "item": item_to_value(command)}),
        ("event_msg", {"type": "task_complete", **turn, "completed_at": 7, "duration_ms": 2000}),
    ]
    early, served = both(content_of(lines))
    assert early == served
    assert [item["type"] for item in served[0]["items"]] == ["userMessage", "commandExecution"]


@pytest.mark.parametrize("name", ["compacted", "unknown"])
def test_other_kinds_of_lines_are_left_to_the_server(name: str) -> None:
    early, _ = both(content_of([(name, {})]))
    assert early is None
