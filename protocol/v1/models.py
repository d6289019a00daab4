"""The models that can be chosen."""

from protocol.base import WireModel
from protocol.fields import Count
from protocol.policy import ReasoningEffort
from protocol.structs import WireStruct


class ReasoningEffortOption(WireStruct):
    reasoning_effort: ReasoningEffort
    description: str


class ModelEntry(WireStruct):
    """One model. `model` is what a conversation is given, `id` distinguishes entries of this list."""

    id: str
    model: str
    display_name: str
    description: str
    supported_reasoning_efforts: tuple[ReasoningEffortOption, ...]
    default_reasoning_effort: ReasoningEffort
    is_default: bool


class ModelListParams(WireModel):
    cursor: str | None = None
    limit: Count | None = None


class ModelListResponse(WireStruct):
    data: tuple[ModelEntry, ...]
    next_cursor: str | None = None
