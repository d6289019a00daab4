"""Connects the goal of a conversation with its turns: it counts the usage of turns, records their ends, and begins the
next turn.

`GoalState` decides whether a turn is to begin. This module emits the changes of the goal, which stores them.
"""

from __future__ import annotations

from app_server.engine.session.goals import budget_spent_message, goal_turn_message
from app_server.engine.session.session_services import TurnContext
from app_server.engine.turn.turn_items import TurnInput
from app_server_protocol.engine.errors import TurnError
from app_server_protocol.engine.events import Goal, GoalStatus, GoalUpdated
from app_server_protocol.engine.notices import WarningNotice


def count_reply(turn: TurnContext, *, calls: bool) -> None:
    """Count a reply for the goal. `calls`: the model called tools, so another request follows in this turn."""
    sources, goals = turn.services.sources, turn.services.state.goals
    before = goals.goal
    goal = goals.count(
        turn.services.state.tokens.total, sources.clock(), int(sources.wall_clock()), calls=calls
    )
    if goal is None:
        return
    turn.emitter.emit(GoalUpdated(goal))
    ran_out = before is not None and before.status is not goal.status is GoalStatus.BUDGET_LIMITED
    if ran_out and calls:
        turn.record(budget_spent_message(goal))


def turn_ends(turn: TurnContext, *, error: TurnError | None = None, interrupted: bool = False) -> None:
    """Record the end of a turn for the goal, before the turn's own end is emitted."""
    for_goal = turn.emitter.operation_id.startswith(GOAL_OPERATION)
    goal = turn.services.state.goals.turn_ends(
        int(turn.services.sources.wall_clock()),
        error=None if error is None else error.error_class,
        interrupted=interrupted,
        for_goal=for_goal,
    )
    if goal is None:
        return
    turn.emitter.emit(GoalUpdated(goal))
    if error is None:
        turn.emitter.emit(WarningNotice(message=_NO_PROGRESS))


def goal_words(goal: Goal) -> TurnInput:
    """Return the input of a turn that only the goal asked for."""
    return TurnInput(goal_turn_message(goal), is_shown=False)


GOAL_OPERATION = "goal-"
"""Prefix of the id of an operation that the session itself creates; a number follows."""

_NO_PROGRESS = (
    "The goal of this thread is blocked: in its last turns the model only talked and did nothing. "
    "Set it active again to go on."
)
