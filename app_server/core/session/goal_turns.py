"""The goal of a conversation in its turns: what they use is counted, their ends are noted, and the next one is begun.

Whether one is to begin is decided by `GoalKeeper`; here its changes are emitted, and thereby stored.
"""

from __future__ import annotations

from app_server.core.goals import budget_spent_message, goal_turn_message
from app_server.core.session.services import Services, Turn
from app_server.core.turn.items import UserWords
from app_server_protocol.engine.errors import TurnError
from app_server_protocol.engine.events import Goal, GoalStatus, GoalUpdated
from app_server_protocol.events.notices import WarningEvent


def turn_begins(services: Services, *, asked_for: bool) -> None:
    services.state.goals.turn_begins(
        services.state.tokens.total, services.sources.clock(), asked_for=asked_for
    )


def count_reply(turn: Turn, *, calls: bool) -> None:
    """Count a reply for the goal. `calls`: the model called tools, so it is asked again in this turn."""
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


def turn_ends(turn: Turn, *, error: TurnError | None = None, interrupted: bool = False) -> None:
    """Note the end of a turn for the goal, before the turn's own end is emitted."""
    for_goal = turn.operation_id.startswith(GOAL_OPERATION)
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
        turn.emitter.emit(WarningEvent(message=_NO_PROGRESS))


def goal_words(goal: Goal) -> UserWords:
    """Return what a turn begins with that nobody but the goal asked for."""
    return UserWords(goal_turn_message(goal), is_shown=False)


GOAL_OPERATION = "goal-"
"""With a number, the id of an operation of which the session is the author."""

_NO_PROGRESS = (
    "The goal of this thread is blocked: in its last turns the model only talked and did nothing. "
    "Set it active again to go on."
)
