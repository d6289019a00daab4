"""Prompts and their end."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from protocol.acp.content import ContentBlock
from protocol.base import WireModel
from protocol.structs import WireStruct

MOST_BLOCKS = 1000


class StopReason(StrEnum):
    END_TURN = "end_turn"
    MAX_TOKENS = "max_tokens"
    MAX_TURN_REQUESTS = "max_turn_requests"
    REFUSAL = "refusal"
    CANCELLED = "cancelled"


Blocks = Annotated[tuple[ContentBlock, ...], Field(max_length=MOST_BLOCKS)]


class PromptRequest(WireModel):
    session_id: str
    prompt: Blocks


class PromptResponse(WireStruct):
    stop_reason: StopReason


class SteeringOutcome(StrEnum):
    INJECTED = "injected"
    """The words joined the turn that runs."""
    PROMPT_REQUIRED = "promptRequired"
    """Nothing runs: a prompt is needed."""


class SteeringRequest(WireModel):
    """An extension that hosts know: say something to the turn that runs."""

    session_id: str
    prompt: Blocks


class SteeringResponse(WireStruct):
    outcome: SteeringOutcome
