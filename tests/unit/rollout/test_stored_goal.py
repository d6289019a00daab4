"""The goal of a stored conversation."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.core.errors import RolloutUnreadable
from app_server.core.rollout.conversation import read_rollout
from app_server.core.rollout.last_state import goal_in, last_goal
from app_server.core.rollout.stored_events import stored_events
from app_server.core.rollout.writer import RolloutWriter
from protocol.base import Json
from protocol.engine.events import Goal, GoalCleared, GoalStatus, GoalUpdated, SessionEvent
from tests.unit.rollout.stored import assistant, now, store

GOAL = Goal(objective="ship", created_at=7, updated_at=8)
WHOLE: Json = {
    "objective": "ship",
    "status": "active",
    "token_budget": None,
    "tokens_used": 0,
    "seconds_used": 0.0,
    "created_at": 7,
    "updated_at": 8,
}

goals = st.builds(
    Goal,
    objective=st.text(st.characters(codec="utf-8")),
    status=st.sampled_from(GoalStatus),
    token_budget=st.none() | st.integers(0),
    tokens_used=st.integers(0),
    seconds_used=st.floats(0, allow_nan=False, allow_infinity=False),
    created_at=st.integers(),
    updated_at=st.integers(),
)


def append(path: Path, event: GoalUpdated | GoalCleared) -> None:
    writer = RolloutWriter.resume(path, now)
    writer.append(stored_events(SessionEvent("", None, event), identity=True))
    writer.close()


def both_ways(path: Path) -> Goal | None:
    """What a reader of the whole file finds, which is what a reader from its end finds."""
    found = last_goal(path)
    assert read_rollout(path).goal == found
    return found


def test_the_last_line_about_a_goal_counts(tmp_path: Path) -> None:
    path = store(tmp_path, [])
    assert both_ways(path) is None
    append(path, GoalUpdated(GOAL))
    assert both_ways(path) == GOAL
    writer = RolloutWriter.resume(path, now)
    writer.append([assistant('{"type":"event_msg","payload":{"type":"goal_cleared"}}')])
    writer.close()
    assert both_ways(path) == GOAL
    with path.open("ab") as file:
        file.write(b'{"timestamp":"t","type":"event_msg","payload":{"type":"exec_command_end"}}\n')
    assert both_ways(path) == GOAL, "an event of another kind says nothing of the goal"
    append(path, GoalCleared())
    assert both_ways(path) is None


def test_a_file_that_is_not_there_has_no_goal(tmp_path: Path) -> None:
    with pytest.raises(RolloutUnreadable, match="no such file"):
        last_goal(tmp_path / "none")


@given(goals)
def test_a_goal_is_read_as_it_was_stored(goal: Goal) -> None:
    [line] = stored_events(SessionEvent("", None, GoalUpdated(goal)), identity=False)
    assert goal_in(json.loads(line.to_json())) == goal


@pytest.mark.parametrize(
    "payload",
    [
        None,
        {},
        [],
        {"goal": 5},
        {"goal": {}},
        *({"goal": {**WHOLE, key: {}}} for key in WHOLE if key != "objective"),
        *({"goal": {k: v for k, v in WHOLE.items() if k != key}} for key in WHOLE),
        {"goal": {**WHOLE, "created_at": float("inf")}},
    ],
)
def test_what_is_no_goal_is_none(payload: Json) -> None:
    assert goal_in(payload) is None


def test_numbers_are_read_as_what_they_are() -> None:
    goal = goal_in({"goal": {**WHOLE, "token_budget": 5.0, "seconds_used": 1}})
    assert goal is not None
    assert (goal.token_budget, goal.seconds_used) == (5, 1.0)
