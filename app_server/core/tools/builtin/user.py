"""`update_plan` and `request_user_input`: the model shows the user its plan, or, in plan mode only, asks, and the user
chooses or writes an answer. Neither has another effect.
"""

from __future__ import annotations

import json
from typing import Annotated

from pydantic import FailFast, Field

from app_server.core.model.prompt import FunctionTool, ToolSpec
from app_server.core.tools.arguments import ToolArguments, function_tool, parameters, parse_arguments
from app_server.core.tools.contract import ToolCall, ToolFailure, ToolOutput, ToolTurn, text_output
from protocol.engine.questions import Choice, Inquiry, UserInputAnswer, UserInputQuestion
from protocol.events.tools import PlanItemArg, PlanUpdateEvent, StepStatus
from protocol.policy import TurnMode


class PlanStep(ToolArguments):
    step: str
    status: StepStatus


class PlanArguments(ToolArguments):
    explanation: str | None = None
    plan: Annotated[tuple[PlanStep, ...], FailFast()] = Field(
        description="All steps, in order; at most one is in progress."
    )


class PlanTool:
    name = "update_plan"
    parallel = False

    def spec(self) -> ToolSpec:
        return function_tool(
            self.name,
            PlanArguments,
            "Shows the user the steps of the task and how far each is. Send the whole plan each time.",
        )

    async def invoke(self, call: ToolCall, turn: ToolTurn) -> ToolOutput:
        if turn.settings.mode is TurnMode.PLAN:
            raise ToolFailure("update_plan shows the steps of work, which there is none of in plan mode")
        arguments = parse_arguments(call.arguments, PlanArguments)
        steps = tuple(PlanItemArg(step=item.step, status=item.status) for item in arguments.plan)
        turn.emit(PlanUpdateEvent(explanation=arguments.explanation, plan=steps))
        return text_output("Plan updated")


MOST_INQUIRIES = 8
MOST_CHOICES = 16
MAX_ANSWER = 16 * 1024
"""Characters of one answer."""
MOST_ANSWERS = 32
"""To one question."""


class UserInputChoice(ToolArguments):
    label: str = Field(description="One to five words.")
    description: str = Field(description="What choosing it means, in a sentence.")


class UserInputInquiry(ToolArguments):
    id: str = Field(description="Names the question in the result; snake_case.")
    header: str = Field(description="At most twelve characters.")
    question: str = Field(description="One sentence.")
    options: Annotated[tuple[UserInputChoice, ...], FailFast()] = Field(
        description="Two or three answers that exclude each other, the recommended one first. "
        "The user can always write another one, so do not offer that."
    )


class UserInputArguments(ToolArguments):
    questions: Annotated[tuple[UserInputInquiry, ...], FailFast()] = Field(
        description="One to three questions."
    )


class RequestUserInputTool:
    name = "request_user_input"
    parallel = False

    def spec(self) -> ToolSpec:
        return FunctionTool(
            name=self.name,
            description="Asks the user and waits for the answers. Ask only what you cannot find out yourself.",
            parameters=parameters(UserInputArguments),
        )

    async def invoke(self, call: ToolCall, turn: ToolTurn) -> ToolOutput:
        if turn.settings.mode is not TurnMode.PLAN:
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
