"""`update_plan`: the model's plan, shown to the user. It changes nothing else."""

from __future__ import annotations

from typing import Final

from app_server.core.model.prompt import FunctionTool, ToolSpec
from app_server.core.tools.arguments import parse_arguments
from app_server.core.tools.contract import ToolCall, ToolOutput, ToolTurn, text_output
from protocol.base import Json
from protocol.events.tools import PlanItemArg, PlanUpdateEvent, StepStatus

PARAMETERS: Final[dict[str, Json]] = {
    "type": "object",
    "properties": {
        "explanation": {"type": "string"},
        "plan": {
            "type": "array",
            "description": "All steps, in order; at most one is in progress.",
            "items": {
                "type": "object",
                "properties": {
                    "step": {"type": "string"},
                    "status": {"type": "string", "enum": [status.value for status in StepStatus]},
                },
                "required": ["step", "status"],
                "additionalProperties": False,
            },
        },
    },
    "required": ["plan"],
    "additionalProperties": False,
}


class PlanTool:
    name = "update_plan"
    parallel = False

    def spec(self) -> ToolSpec:
        return FunctionTool(
            name=self.name,
            description="Shows the user the steps of the task and how far each is. Send the whole plan each time.",
            parameters=PARAMETERS,
        )

    async def run(self, call: ToolCall, turn: ToolTurn) -> ToolOutput:
        arguments = parse_arguments(call.arguments, PARAMETERS)
        steps = tuple(
            PlanItemArg(step=item["step"], status=StepStatus(item["status"])) for item in arguments["plan"]
        )
        turn.emit(PlanUpdateEvent(explanation=arguments.get("explanation"), plan=steps))
        return text_output("Plan updated")
