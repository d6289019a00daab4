"""`get_goal`, `create_goal`, `update_goal`: the model reads the goal of the thread, sets one where the user asked for
it, and says when it is reached. Offered in turns of APIs that know goals.
"""

from __future__ import annotations

import json

from app_server.core.goals import GoalRefused, NoGoal, TurnGoals
from app_server.core.tools.arguments import parse_arguments
from app_server.core.tools.contract import ToolCall, ToolFailure, ToolOutput, ToolTurn, text_output
from app_server.core.tools.schemas import GoalReport, NewGoal
from protocol.engine.events import Goal, GoalStatus, GoalUpdated


async def invoke(call: ToolCall, turn: ToolTurn) -> ToolOutput:
    """Read, set or judge the goal of the thread."""
    goals = _goals(turn)
    try:
        match call.name:
            case "create_goal":
                new = parse_arguments(call.arguments, NewGoal)
                goal = goals.keeper.create(new.objective, new.token_budget, goals.now())
            case "update_goal":
                report = parse_arguments(call.arguments, GoalReport)
                goal = goals.keeper.update(GoalStatus(report.status.value), goals.now())
            case _:
                return _answer(goals.keeper.goal)
    except (GoalRefused, NoGoal) as error:
        raise ToolFailure(str(error)) from error
    turn.emit(GoalUpdated(goal))
    return _answer(goal)


def _goals(turn: ToolTurn) -> TurnGoals:
    if turn.goals is None:
        raise ToolFailure("this conversation has no goals")
    return turn.goals


def _answer(goal: Goal | None) -> ToolOutput:
    shown = None
    if goal is not None:
        shown = {
            "objective": goal.objective,
            "status": goal.status.value,
            "tokenBudget": goal.token_budget,
            "tokensUsed": goal.tokens_used,
            "timeUsedSeconds": int(goal.seconds_used),
        }
    left = goal.tokens_left if goal is not None else None
    return text_output(json.dumps({"goal": shown, "remainingTokens": left}, ensure_ascii=False))
