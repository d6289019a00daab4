"""Every event comes back from the wire as it went, its type first, its nulls where clients expect them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.base import Json
from protocol.events.commands import AddFileChange, Duration, PatchApplyBeginEvent
from protocol.events.msg import EVENTS, SessionConfiguredEvent, parse_event_msg
from protocol.events.notices import ErrorEvent
from protocol.mcp import CallToolResult, TextContent
from protocol.structs import read
from tests.wire import samples

any_text = st.text(st.characters(exclude_categories=()), max_size=30)


@pytest.mark.parametrize("raw", samples.EVENTS, ids=lambda raw: raw["type"])
def test_an_event_survives_a_round_trip(raw: Json) -> None:
    event = parse_event_msg(raw)
    assert event is not None
    assert event.to_value() == raw
    assert json.loads(event.to_json()) == raw
    assert event.to_json().startswith(f'{{"type":"{raw["type"]}"'.encode())
    assert parse_event_msg(event.to_value()) == event
    assert read(type(event), json.loads(event.to_json())) == event


def test_every_event_has_a_sample() -> None:
    assert {raw["type"] for raw in samples.EVENTS} == set(EVENTS)


@pytest.mark.parametrize("raw", [{"type": "from_the_future"}, {"type": 5}, {}, [], "text", None])
def test_what_is_no_known_event_is_none(raw: Json) -> None:
    assert parse_event_msg(raw) is None


@pytest.mark.parametrize(
    "raw",
    [
        {"type": "agent_message", "message": 5},
        {
            "type": "patch_apply_begin",
            "call_id": "c",
            "auto_approved": True,
            "changes": {"/a": {"content": "x"}},
        },
        {
            "type": "patch_apply_begin",
            "call_id": "c",
            "auto_approved": True,
            "changes": {"/a": {"add": {"content": "x"}, "delete": {"content": "x"}}},
        },
    ],
)
def test_a_damaged_event_is_none(raw: Json) -> None:
    assert parse_event_msg(raw) is None


def test_events_inside_of_session_configured_are_models_and_unknown_ones_are_skipped() -> None:
    event = read(
        SessionConfiguredEvent,
        {
            "session_id": samples.THREAD,
            "model": "m",
            "history_log_id": 0,
            "history_entry_count": 0,
            "rollout_path": "/r",
            "initial_messages": [{"type": "from_the_future"}, {"type": "error", "message": "x"}],
        },
    )
    assert event.initial_messages == (ErrorEvent(message="x"),)


@given(any_text, any_text)
def test_writing_never_fails_on_odd_text(path: str, content: str) -> None:
    event = PatchApplyBeginEvent(
        call_id="c", auto_approved=True, changes={path: AddFileChange(content=content)}
    )
    ((written, change),) = json.loads(event.to_json())["changes"].items()
    assert change == {"add": {"content": content}}
    # A key that UTF-8 cannot carry may come out with replacement characters; everything else is exact.
    assert written == path or "\ufffd" in written


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | any_text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(any_text, inner, max_size=4),
    max_leaves=12,
)


@given(json_values)
def test_writing_never_fails_on_values_that_pass_through(value: Json) -> None:
    result = CallToolResult(content=(TextContent(text="\ud800"),), structured_content=value)
    json.loads(result.to_json(), parse_constant=pytest.fail)
    json.loads(CallToolResult(content=(), structured_content=value).to_json(), parse_constant=pytest.fail)


def test_writing_does_not_fail_on_what_is_nested_too_deeply() -> None:
    value: Json = []
    for _ in range(900):
        value = [value]
    json.loads(CallToolResult(content=(), structured_content=value).to_json())


def test_a_duration_of_seconds() -> None:
    assert Duration.from_seconds(1.5) == Duration(secs=1, nanos=500_000_000)
    assert Duration.from_seconds(0.9999999999) == Duration(secs=1, nanos=0)
    assert Duration.from_seconds(-1) == Duration(secs=0, nanos=0)
