"""The goal of a conversation in its turns: what they use is counted, their ends are noted, and the next one is begun.

Whether one is to begin is decided by `GoalKeeper`; here its changes are emitted, and thereby stored.
"""

from __future__ import annotations

from app_server.core.goals import TurnGoals, budget_spent_message, goal_turn_message
from app_server.core.session.services import Services, SessionState
from app_server.core.turn.emitter import TurnEmitter
from app_server.core.turn.items import UserWords
from app_server.core.turn.outbox import StoredTranscript
from protocol.engine.errors import TurnError
from protocol.engine.events import GoalStatus, GoalUpdated
from protocol.events.notices import WarningEvent
from protocol.events.turn import TokenUsage


def goals_for_tools(services: Services, state: SessionState) -> TurnGoals:
    return TurnGoals(state.goals, lambda: int(services.sources.wall_clock()))


def turn_begins(services: Services, state: SessionState, *, asked_for: bool) -> None:
    state.goals.turn_begins(_used(state), services.sources.clock(), asked_for=asked_for)


def count_reply(services: Services, state: SessionState, emitter: TurnEmitter, *, calls: bool) -> None:
    """Count a reply for the goal. `calls`: the model called tools, so it is asked again in this turn."""
    before = state.goals.goal
    clock, now = services.sources.clock(), int(services.sources.wall_clock())
    goal = state.goals.count(_used(state), clock, now, calls=calls)
    if goal is None:
        return
    emitter.emit(GoalUpdated(goal))
    ran_out = before is not None and before.status is not goal.status is GoalStatus.BUDGET_LIMITED
    if ran_out and calls:
        StoredTranscript(state.history, services.outbox).record(emitter, [budget_spent_message(goal)])


def turn_ends(
    services: Services,
    state: SessionState,
    emitter: TurnEmitter,
    *,
    error: TurnError | None = None,
    interrupted: bool = False,
) -> None:
    """Note the end of a turn for the goal, before the turn's own end is emitted."""
    for_goal = emitter.operation_id.startswith(GOAL_OPERATION)
    goal = state.goals.turn_ends(
        int(services.sources.wall_clock()),
        error=None if error is None else error.error_class,
        interrupted=interrupted,
        for_goal=for_goal,
    )
    if goal is None:
        return
    emitter.emit(GoalUpdated(goal))
    if error is None:
        emitter.emit(WarningEvent(message=_NO_PROGRESS))


def goal_words(state: SessionState) -> UserWords:
    """Return what a turn begins with that nobody but the goal asked for."""
    assert state.goals.goal is not None
    return UserWords(goal_turn_message(state.goals.goal), is_shown=False)


GOAL_OPERATION = "goal-"
"""With a number, the id of an operation of which the session is the author."""

_NO_PROGRESS = (
    "The goal of this thread is blocked: in its last turns the model only talked and did nothing. "
    "Set it active again to go on."
)


def _used(state: SessionState) -> TokenUsage:
    return state.tokens.info.total_token_usage if state.tokens.info is not None else TokenUsage()
