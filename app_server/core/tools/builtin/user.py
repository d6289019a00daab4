"""`update_plan` and `request_user_input`: the model shows the user its plan, or, in plan mode only, asks, and the user
chooses or writes an answer. Neither has another effect.
"""

from __future__ import annotations

import json

from app_server.core.tools.arguments import parse_arguments
from app_server.core.tools.contract import ToolCall, ToolFailure, ToolOutput, ToolTurn, text_output
from app_server.core.tools.schemas import PlanArguments, UserInputArguments
from protocol.engine.questions import Choice, Inquiry, UserInputAnswer, UserInputQuestion
from protocol.events.tools import PlanItemArg, PlanUpdateEvent
from protocol.policy import TurnMode

MOST_INQUIRIES = 8
MOST_CHOICES = 16
MAX_ANSWER = 16 * 1024
"""Characters of one answer."""
MOST_ANSWERS = 32
"""To one question."""


async def invoke(call: ToolCall, turn: ToolTurn) -> ToolOutput:
    """Show a plan, or ask the user."""
    return await (_update_plan if call.name == "update_plan" else _request_user_input)(call, turn)


async def _update_plan(call: ToolCall, turn: ToolTurn) -> ToolOutput:
    if turn.settings.mode.kind is TurnMode.PLAN:
        raise ToolFailure("update_plan shows the steps of work, which there is none of in plan mode")
    arguments = parse_arguments(call.arguments, PlanArguments)
    steps = tuple(PlanItemArg(step=item.step, status=item.status) for item in arguments.plan)
    turn.emit(PlanUpdateEvent(explanation=arguments.explanation, plan=steps))
    return text_output("Plan updated")


async def _request_user_input(call: ToolCall, turn: ToolTurn) -> ToolOutput:
    if turn.settings.mode.kind is not TurnMode.PLAN:
        raise ToolFailure("request_user_input is unavailable in Default mode")
    inquiries = _inquiries(parse_arguments(call.arguments, UserInputArguments))
    question = UserInputQuestion(call.call_id, inquiries)
    answer = await turn.approvals.questions.ask(call.call_id, lambda: turn.emit(question))
    await turn.approvals.store()
    given = answer.answers if isinstance(answer, UserInputAnswer) else {}
    answers = {
        inquiry.id: {"answers": [text[:MAX_ANSWER] for text in given[inquiry.id][:MOST_ANSWERS]]}
        for inquiry in inquiries
        if inquiry.id in given
    }
    return text_output(json.dumps({"answers": answers}, ensure_ascii=False, separators=(",", ":")))


def _inquiries(arguments: UserInputArguments) -> tuple[Inquiry, ...]:
    questions = arguments.questions
    if not 0 < len(questions) <= MOST_INQUIRIES:
        raise ToolFailure(f"request_user_input takes one to {MOST_INQUIRIES} questions")
    if len({each.id for each in questions}) != len(questions):
        raise ToolFailure("request_user_input requires a different id for every question")
    if not all(0 < len(each.options) <= MOST_CHOICES for each in questions):
        raise ToolFailure("request_user_input requires non-empty options for every question")
    return tuple(
        Inquiry(
            id=each.id,
            header=each.header,
            text=each.question,
            choices=tuple(Choice(option.label, option.description) for option in each.options),
        )
        for each in questions
    )
