"""Tools for the exchange between the model and the user, without other effects.

`update_plan` shows the model's plan. `request_user_input` asks the user, who chooses or writes an answer; it is for
plan mode, or if a feature enables it. `get_goal`, `create_goal` and `update_goal` work on the goal of the thread.
"""

from __future__ import annotations

import json

from app_server.engine.session.goals import GoalRefused, NoGoal
from app_server.engine.tools import tool_schemas
from app_server.engine.tools.tool_base import ToolCall, ToolContext, ToolFailure, ToolOutput, text_output
from app_server_protocol.engine.events import Goal, GoalStatus, GoalUpdated
from app_server_protocol.engine.item_values import PlanItemArg
from app_server_protocol.engine.notices import PlanUpdated
from app_server_protocol.engine.questions import Choice, UserInputAnswer, UserInputQuestion, UserQuestion
from app_server_protocol.policy import TurnMode

MOST_INQUIRIES = 8
MOST_CHOICES = 16
MAX_ANSWER = 16 * 1024
"""Maximum size of one answer, in characters."""
MOST_ANSWERS = 32
"""Maximum number of answers to one question."""


async def invoke(call: ToolCall, turn: ToolContext) -> ToolOutput:
    """Serve a call of one of the tools of this module."""
    match call.name:
        case "update_plan":
            return _update_plan(call, turn)
        case "request_user_input":
            return await _request_user_input(call, turn)
        case "get_goal" | "create_goal" | "update_goal":
            return _use_goal(call, turn)
        case name:
            raise ToolFailure(f"{name} is not served")


def _update_plan(call: ToolCall, turn: ToolContext) -> ToolOutput:
    if turn.settings.mode.kind is TurnMode.PLAN:
        raise ToolFailure("update_plan shows the steps of work, which there is none of in plan mode")
    arguments = tool_schemas.parse_arguments(call.arguments, tool_schemas.PlanArguments)
    steps = tuple(PlanItemArg(step=item.step, status=item.status) for item in arguments.plan)
    turn.emit(PlanUpdated(explanation=arguments.explanation, plan=steps))
    return text_output("Plan updated")


async def _request_user_input(call: ToolCall, turn: ToolContext) -> ToolOutput:
    in_plan_mode = turn.settings.mode.kind is TurnMode.PLAN
    if not in_plan_mode and not turn.config.features.enabled(tool_schemas.ASKS_IN_DEFAULT_MODE):
        raise ToolFailure("request_user_input is unavailable in Default mode")
    inquiries = _inquiries(tool_schemas.parse_arguments(call.arguments, tool_schemas.UserInputArguments))
    question = UserInputQuestion(call.call_id, inquiries)
    answer = await turn.approvals.questions.ask(call.call_id, lambda: turn.emit(question))
    await turn.approvals.flush()
    given = answer.answers if isinstance(answer, UserInputAnswer) else {}
    answers = {
        inquiry.id: {"answers": [text[:MAX_ANSWER] for text in given[inquiry.id][:MOST_ANSWERS]]}
        for inquiry in inquiries
        if inquiry.id in given
    }
    return text_output(json.dumps({"answers": answers}, ensure_ascii=False, separators=(",", ":")))


def _inquiries(arguments: tool_schemas.UserInputArguments) -> tuple[UserQuestion, ...]:
    questions = arguments.questions
    if not 0 < len(questions) <= MOST_INQUIRIES:
        raise ToolFailure(f"request_user_input takes one to {MOST_INQUIRIES} questions")
    if len({each.id for each in questions}) != len(questions):
        raise ToolFailure("request_user_input requires a different id for every question")
    if not all(0 < len(each.options) <= MOST_CHOICES for each in questions):
        raise ToolFailure("request_user_input requires non-empty options for every question")
    return tuple(
        UserQuestion(
            id=each.id,
            header=each.header,
            text=each.question,
            choices=tuple(Choice(option.label, option.description) for option in each.options),
        )
        for each in questions
    )


def _use_goal(call: ToolCall, turn: ToolContext) -> ToolOutput:
    """Read, create or update the goal of the thread."""
    if (goals := turn.goals) is None:
        raise ToolFailure("this conversation has no goals")
    now = int(turn.sources.wall_clock())
    try:
        match call.name:
            case "create_goal":
                new = tool_schemas.parse_arguments(call.arguments, tool_schemas.NewGoal)
                goal = goals.create(new.objective, new.token_budget, now)
            case "update_goal":
                report = tool_schemas.parse_arguments(call.arguments, tool_schemas.GoalReport)
                goal = goals.update(GoalStatus(report.status.value), now)
            case _:
                return _answer(goals.goal)
    except (GoalRefused, NoGoal) as error:
        raise ToolFailure(str(error)) from error
    turn.emit(GoalUpdated(goal))
    return _answer(goal)


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
