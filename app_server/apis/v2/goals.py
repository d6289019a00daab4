"""Goals of the engine as goals of the thread API, and back. Pure."""

from __future__ import annotations

from typing import Final

from protocol.engine import goals as engine
from protocol.v2.thread_work import ThreadGoal, ThreadGoalStatus

_SHOWN: Final = {
    engine.GoalStatus.ACTIVE: ThreadGoalStatus.ACTIVE,
    engine.GoalStatus.PAUSED: ThreadGoalStatus.PAUSED,
    engine.GoalStatus.BLOCKED: ThreadGoalStatus.BLOCKED,
    engine.GoalStatus.USAGE_LIMITED: ThreadGoalStatus.USAGE_LIMITED,
    engine.GoalStatus.BUDGET_LIMITED: ThreadGoalStatus.BUDGET_LIMITED,
    engine.GoalStatus.COMPLETE: ThreadGoalStatus.COMPLETE,
}
_READ: Final = {shown: status for status, shown in _SHOWN.items()}


def shown_goal(thread_id: str, goal: engine.Goal) -> ThreadGoal:
    return ThreadGoal(
        thread_id=thread_id,
        objective=goal.objective,
        status=_SHOWN[goal.status],
        token_budget=goal.token_budget,
        tokens_used=goal.tokens_used,
        time_used_seconds=int(goal.seconds_used),
        created_at=goal.created_at,
        updated_at=goal.updated_at,
    )


def goal_status(shown: ThreadGoalStatus | None) -> engine.GoalStatus | None:
    return None if shown is None else _READ[shown]
