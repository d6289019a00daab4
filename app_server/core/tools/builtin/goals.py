"""`get_goal`, `create_goal`, `update_goal`: the model reads the goal of the thread, sets one where the user asked for
it, and says when it is reached. Offered in turns of APIs that know goals.
"""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Final

from pydantic import Field

from app_server.core.goals import GoalRefused, NoGoal, TurnGoals
from app_server.core.model.prompt import FunctionTool, ToolSpec
from app_server.core.tools.arguments import ToolArguments, Whole, parameters, parse_arguments
from app_server.core.tools.contract import Tool, ToolCall, ToolFailure, ToolOutput, ToolTurn, text_output
from protocol.engine.events import Goal, GoalStatus, GoalUpdated


class NoArguments(ToolArguments):
    pass


class NewGoal(ToolArguments):
    objective: str = Field(description="What is to be reached, concretely.")
    token_budget: Whole | None = Field(
        default=None, description="How many tokens may be used for it. Only where the user named a budget."
    )


class ReportedStatus(StrEnum):
    COMPLETE = "complete"
    BLOCKED = "blocked"
    PAUSED = "paused"


class GoalReport(ToolArguments):
    status: ReportedStatus = Field(
        description="complete: every part is done and checked. blocked: nothing useful can be done without the user. "
        "paused: the user asked for a pause."
    )


class GetGoalTool:
    name = "get_goal"
    parallel = True

    def spec(self) -> ToolSpec:
        return FunctionTool(
            name=self.name,
            description="The goal of this thread: its objective, status, and what it has used of its budget.",
            parameters=parameters(NoArguments),
        )

    async def invoke(self, call: ToolCall, turn: ToolTurn) -> ToolOutput:
        return _answer(_goals(turn).keeper.goal)


class CreateGoalTool:
    name = "create_goal"
    parallel = False

    def spec(self) -> ToolSpec:
        return FunctionTool(
            name=self.name,
            description="Gives this thread a goal, for which turns are begun until it is reached. Only where the user "
            "asked for a goal: an ordinary task is none. Fails where there is one that is not complete.",
            parameters=parameters(NewGoal),
        )

    async def invoke(self, call: ToolCall, turn: ToolTurn) -> ToolOutput:
        arguments = parse_arguments(call.arguments, NewGoal)
        goals = _goals(turn)
        try:
            goal = goals.keeper.create(arguments.objective, arguments.token_budget, goals.now())
        except GoalRefused as error:
            raise ToolFailure(str(error)) from error
        turn.emit(GoalUpdated(goal))
        return _answer(goal)


class UpdateGoalTool:
    name = "update_goal"
    parallel = False

    def spec(self) -> ToolSpec:
        return FunctionTool(
            name=self.name,
            description="Says that the goal of this thread is complete, blocked or paused; no more turns begin then.",
            parameters=parameters(GoalReport),
        )

    async def invoke(self, call: ToolCall, turn: ToolTurn) -> ToolOutput:
        arguments = parse_arguments(call.arguments, GoalReport)
        goals = _goals(turn)
        try:
            goal = goals.keeper.update(GoalStatus(arguments.status.value), goals.now())
        except NoGoal as error:
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


GOAL_TOOLS: Final[tuple[Tool, ...]] = (GetGoalTool(), CreateGoalTool(), UpdateGoalTool())
