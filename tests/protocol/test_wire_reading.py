"""Reading of server messages by a client: the location of errors, and the cost of a value."""

import pytest
from pydantic import TypeAdapter, ValidationError

from app_server_protocol.base import model_of
from app_server_protocol.encoding import Json
from app_server_protocol.parse import read
from app_server_protocol.v1.setup import UserSavedConfig
from app_server_protocol.v2.items import (
    AgentMessageDeltaNotification,
    AgentMessageThreadItem,
    ItemCompletedNotification,
)
from app_server_protocol.v2.thread import ThreadStatusChangedNotification
from app_server_protocol.v2.turn import TurnCompletedNotification

MESSAGE = {"type": "agentMessage", "id": "i", "text": "hi", "phase": None}
COMPLETED = {"threadId": "t", "turnId": "u", "item": MESSAGE, "completedAtMs": 1}


def place_of(kind: type, raw: Json) -> tuple[str, str]:
    """Return the kind of the error, and the dotted name of its field."""
    with pytest.raises(ValidationError) as caught:
        read(kind, raw)
    [first, *_] = caught.value.errors()
    return first["type"], ".".join(map(str, first["loc"]))


def test_a_member_of_a_union_is_named_by_its_tag() -> None:
    event = read(ItemCompletedNotification, COMPLETED)
    assert event.item == AgentMessageThreadItem(id="i", text="hi")
    assert event == TypeAdapter(ItemCompletedNotification).validate_python(COMPLETED)
    assert read(ItemCompletedNotification, event) is event


@pytest.mark.parametrize(
    ("item", "kind", "field"),
    [
        ({**MESSAGE, "text": 1}, "string_type", "item.text"),
        ({**MESSAGE, "type": "poem"}, "union_tag_invalid", "item"),
        ({**MESSAGE, "type": 1}, "union_tag_invalid", "item"),
        ({"id": "i"}, "union_tag_not_found", "item"),
        ("hi", "model_attributes_type", "item"),
    ],
)
def test_a_mistake_is_told_with_its_place(item: Json, kind: str, field: str) -> None:
    assert place_of(ItemCompletedNotification, {**COMPLETED, "item": item}) == (kind, field)


def test_places_lead_through_lists() -> None:
    turn = {"id": "u", "items": [MESSAGE, {**MESSAGE, "id": 1}], "status": "completed"}
    where = place_of(TurnCompletedNotification, {"threadId": "t", "turn": turn})
    assert where == ("string_type", "turn.items.1.id")
    assert place_of(ThreadStatusChangedNotification, {"status": {"type": "idle"}}) == ("missing", "threadId")


def test_no_model_of_a_struct_is_built() -> None:
    model_of.cache_clear()
    read(ItemCompletedNotification, COMPLETED)
    with pytest.raises(ValidationError):
        read(ItemCompletedNotification, {**COMPLETED, "item": {**MESSAGE, "text": 1}})
    assert model_of.cache_info().currsize == 0


STATUS = {"threadId": "t", "status": {"type": "active", "activeFlags": ["waitingOnApproval"]}}


@pytest.mark.parametrize(
    ("kind", "raw"),
    [
        (ItemCompletedNotification, COMPLETED),
        (ItemCompletedNotification, {**COMPLETED, "completedAtMs": 1.0}),
        (ItemCompletedNotification, {**COMPLETED, "later": "unknown"}),
        (
            ItemCompletedNotification,
            {"thread_id": "t", "turn_id": "u", "item": MESSAGE, "completed_at_ms": 1},
        ),
        (
            UserSavedConfig,
            {"model_reasoning_effort": "low", "profiles": {"p": {"model_reasoning_effort": "high"}}},
        ),
        (AgentMessageDeltaNotification, {"thread_id": "t", "turnId": "u", "item_id": "i", "delta": "d"}),
        (ThreadStatusChangedNotification, STATUS),
        (
            TurnCompletedNotification,
            {"threadId": "t", "turn": {"id": "u", "items": [MESSAGE], "status": "failed"}},
        ),
    ],
)
def test_a_value_is_read_as_pydantic_reads_it(kind: type, raw: Json) -> None:
    assert read(kind, raw) == TypeAdapter(kind).validate_python(raw)


@pytest.mark.parametrize(
    ("kind", "raw", "mistakes"),
    [
        (
            ItemCompletedNotification,
            {**COMPLETED, "completedAtMs": "soon"},
            {("int_parsing", "completedAtMs")},
        ),
        (
            ItemCompletedNotification,
            {"item": {**MESSAGE, "text": None}},
            {
                ("missing", "threadId"),
                ("missing", "turnId"),
                ("missing", "completedAtMs"),
                ("string_type", "item.text"),
            },
        ),
        (ItemCompletedNotification, [COMPLETED], {("model_type", "")}),
        (
            ThreadStatusChangedNotification,
            {**STATUS, "status": {"type": "active", "activeFlags": ["no", "nor"]}},
            {("literal_error", "status.activeFlags.0"), ("literal_error", "status.activeFlags.1")},
        ),
        (
            ThreadStatusChangedNotification,
            {**STATUS, "status": {"type": "active", "activeFlags": "no"}},
            {("tuple_type", "status.activeFlags")},
        ),
        (
            TurnCompletedNotification,
            {"threadId": "t", "turn": {"id": "u", "items": {}, "status": "lost"}},
            {("tuple_type", "turn.items"), ("enum", "turn.status")},
        ),
    ],
)
def test_all_mistakes_are_named(kind: type, raw: Json, mistakes: set[tuple[str, str]]) -> None:
    with pytest.raises(ValidationError) as caught:
        read(kind, raw)
    assert {(each["type"], ".".join(map(str, each["loc"]))) for each in caught.value.errors()} == mistakes
