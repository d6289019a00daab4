"""The states of a goal, and when a turn begins for it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.engine.session import goals
from app_server_protocol.engine.errors import ErrorClass
from app_server_protocol.engine.events import Goal, GoalStatus
from app_server_protocol.engine.token_usage import TokenUsage
from app_server_protocol.responses import InputText


def used(tokens: int, cached: int = 0) -> TokenUsage:
    return TokenUsage(input_tokens=tokens + cached, cached_input_tokens=cached, total_tokens=tokens + cached)


def keeper(objective: str = "tidy up", *, budget: int | None = None) -> goals.GoalState:
    found = goals.GoalState()
    found.set(goals.GoalChange(objective=objective, token_budget=budget), 100)
    return found


def turn(found: goals.GoalState, total: int, *, calls: bool = True, error: ErrorClass | None = None) -> None:
    """Count a turn for the goal, after which `total` tokens have been used."""
    found.turn_begins(found._counted, 0.0, asked_for=False)
    found.count(used(total), 1.0, 101, calls=calls)
    found.turn_ends(101, error=error, interrupted=False, for_goal=True)


def status(found: goals.GoalState) -> GoalStatus:
    assert found.goal is not None
    return found.goal.status


def test_a_goal_that_was_set_wants_turns_until_it_is_complete() -> None:
    found = keeper()
    assert found.wants_turn
    turn(found, 10)
    assert found.wants_turn
    found.update(GoalStatus.COMPLETE, 102)
    assert not found.wants_turn


@pytest.mark.parametrize("other", [each for each in GoalStatus if each is not GoalStatus.ACTIVE])
def test_no_turn_is_wanted_in_any_other_status(other: GoalStatus) -> None:
    found = keeper()
    found.set(goals.GoalChange(status=other), 101)
    assert not found.wants_turn
    found.set(goals.GoalChange(status=GoalStatus.ACTIVE), 102)
    assert found.wants_turn


def test_a_restored_goal_waits_for_a_word_of_the_user() -> None:
    found = goals.GoalState(Goal(objective="old", created_at=1, updated_at=1))
    assert not found.wants_turn
    found.turn_begins(TokenUsage(), 0.0, asked_for=True)
    found.turn_ends(2, error=None, interrupted=False, for_goal=False)
    assert found.wants_turn


def test_an_interrupt_waits_for_the_next_word() -> None:
    found = keeper()
    found.turn_begins(TokenUsage(), 0.0, asked_for=False)
    found.turn_ends(2, error=None, interrupted=True, for_goal=True)
    assert (status(found), found.wants_turn) == (GoalStatus.ACTIVE, False)
    found.turn_begins(TokenUsage(), 0.0, asked_for=True)
    assert found.wants_turn


def test_what_is_used_is_counted_without_what_was_cached() -> None:
    found = keeper(budget=100)
    found.turn_begins(used(50), 7.0, asked_for=True)
    found.count(used(80, cached=1000), 9.5, 101, calls=True)
    assert found.goal is not None
    assert (found.goal.tokens_used, found.goal.seconds_used, found.goal.tokens_left) == (30, 2.5, 70)
    found.count(used(10), 9.5, 101, calls=True)  # the total was reset
    assert found.goal.tokens_used == 30
    found.count(used(90), 9.5, 101, calls=True)
    assert (found.goal.tokens_used, found.goal.status) == (110, GoalStatus.BUDGET_LIMITED)


def test_the_reply_that_completes_the_goal_counts_and_no_later_one() -> None:
    found = keeper()
    found.turn_begins(used(0), 0.0, asked_for=False)
    found.update(GoalStatus.COMPLETE, 101)
    found.count(used(15), 2.0, 101, calls=True)
    found.count(used(40), 3.0, 101, calls=False)
    assert found.goal is not None
    assert (found.goal.tokens_used, found.goal.seconds_used) == (15, 2.0)
    found.turn_begins(used(40), 4.0, asked_for=True)
    found.count(used(90), 5.0, 102, calls=False)
    assert found.goal.tokens_used == 15


@pytest.mark.parametrize(
    ("error", "after"),
    [
        (ErrorClass.OTHER, GoalStatus.BLOCKED),
        (ErrorClass.USAGE_LIMIT_EXCEEDED, GoalStatus.USAGE_LIMITED),
    ],
)
def test_a_failed_turn_ends_the_work(error: ErrorClass, after: GoalStatus) -> None:
    found = keeper()
    turn(found, 10, error=error)
    assert status(found) is after


def test_turns_that_know_no_goals_leave_it_alone() -> None:
    found = goals.GoalState(Goal(objective="old", created_at=1, updated_at=1))
    assert found.turn_ends(2, error=ErrorClass.OTHER, interrupted=False, for_goal=False) is None
    assert status(found) is GoalStatus.ACTIVE


def test_turns_in_which_the_model_only_talks_come_to_an_end() -> None:
    found = keeper()
    for n in range(1, goals.MAX_TURNS_WITHOUT_A_CALL):
        turn(found, n, calls=False)
        assert found.wants_turn
    turn(found, 50, calls=True)
    for n in range(goals.MAX_TURNS_WITHOUT_A_CALL):
        assert found.wants_turn
        turn(found, 100 + n, calls=False)
    assert status(found) is GoalStatus.BLOCKED


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (goals.GoalChange(objective="  "), "goal objective must not be empty"),
        (goals.GoalChange(objective="x" * (goals.MAX_OBJECTIVE + 1)), "at most 4000 characters"),
        (goals.GoalChange(objective="x", token_budget=0), "budgets must be positive"),
        (goals.GoalChange(objective="x", token_budget=-5), "budgets must be positive"),
    ],
)
def test_what_is_no_goal_is_refused_and_changes_nothing(change: goals.GoalChange, text: str) -> None:
    found = keeper()
    before = found.goal
    with pytest.raises(goals.GoalRefused, match=text):
        found.set(change, 101)
    assert found.goal == before


def test_nothing_is_changed_where_there_is_no_goal() -> None:
    found = goals.GoalState()
    with pytest.raises(goals.NoGoal):
        found.set(goals.GoalChange(status=GoalStatus.ACTIVE), 1)
    with pytest.raises(goals.NoGoal):
        found.update(GoalStatus.COMPLETE, 1)
    assert not found.clear()


def test_the_model_sets_a_goal_only_where_none_is_open() -> None:
    found = keeper()
    with pytest.raises(goals.GoalRefused, match="not complete"):
        found.create("another", None, 101)
    turn(found, 10)
    found.update(GoalStatus.COMPLETE, 101)
    assert found.create("another", 5, 102) == Goal(
        objective="another", token_budget=5, created_at=102, updated_at=102
    )


@given(st.text(min_size=1, max_size=200))
def test_an_objective_stays_inside_its_message(objective: str) -> None:
    goal = Goal(objective=f"{objective}</objective><x>", created_at=1, updated_at=1)
    [part] = goals.goal_turn_message(goal).content
    assert isinstance(part, InputText)
    assert part.text.count("</objective>") == 1
    assert "<x>" not in part.text


@given(st.lists(st.tuples(st.integers(0, 10**6), st.booleans(), st.booleans()), max_size=30))
def test_usage_never_shrinks_and_a_spent_goal_never_wants_a_turn(steps: list[tuple[int, bool, bool]]) -> None:
    found = keeper(budget=10_000)
    last = 0
    for total, calls, asked in steps:
        found.turn_begins(found._counted, 0.0, asked_for=asked)
        found.count(used(total), 0.0, 101, calls=calls)
        found.turn_ends(101, error=None, interrupted=False, for_goal=not asked)
        assert found.goal is not None
        assert found.goal.tokens_used >= last
        last = found.goal.tokens_used
        assert not (found.wants_turn and found.goal.is_spent)
