"""`update_plan`: shows the model's plan to the user, without any other effect."""

from __future__ import annotations

from typing import Annotated

from pydantic import FailFast, Field

from app_server.core.model.prompt import ToolSpec
from app_server.core.tools.arguments import ToolArguments, function_tool, parse_arguments
from app_server.core.tools.contract import ToolCall, ToolFailure, ToolOutput, ToolTurn, text_output
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
