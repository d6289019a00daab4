"""The plan, and searches that the provider runs."""

from enum import StrEnum
from typing import Literal

from pydantic import ConfigDict

from protocol.base import EngineModel
from protocol.structs import EngineStruct


class StepStatus(StrEnum):
    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"


class PlanItemArg(EngineModel):
    """One step of the plan. Written by the model, so unknown fields are an error that it is sent."""

    model_config = ConfigDict(extra="forbid")
    step: str
    status: StepStatus


class PlanUpdateEvent(EngineModel):
    """The plan as it now is; it replaces the one before."""

    type: Literal["plan_update"] = "plan_update"
    explanation: str | None = None
    plan: tuple[PlanItemArg, ...]


class WebSearchBeginEvent(EngineStruct):
    """The provider searches the web."""

    type: Literal["web_search_begin"] = "web_search_begin"
    call_id: str


class WebSearchEndEvent(EngineStruct):
    """A search came back. After the `item_completed` of the search."""

    type: Literal["web_search_end"] = "web_search_end"
    call_id: str
    query: str
