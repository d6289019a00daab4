"""What a turn decides about its requests, and who is asking."""

from __future__ import annotations

from protocol.policy import ReasoningEffort, ReasoningSummary, Verbosity
from protocol.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSettings:
    """How the model is to be asked. Settings that its family does not know are left out of the request."""

    model: str
    conversation_id: str
    effort: ReasoningEffort | None = None
    summary: ReasoningSummary = ReasoningSummary.AUTO
    verbosity: Verbosity | None = None
    supports_reasoning_summaries: bool | None = None
    """The user's word on it; None leaves it to the model's family."""
    subagent: str | None = None
    """What the request is for, where it is not the user's turn: `review`, `compact`."""
    live_chat: bool = False
    """Whether a Chat Completions answer comes in deltas and with its token counts, or in whole items."""


@dataclass(frozen=True, slots=True)
class ClientIdentity:
    """How requests present their sender."""

    originator: str
    user_agent: str
