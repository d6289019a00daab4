"""The settings of a turn's requests, and the identity of the client."""

from __future__ import annotations

from protocol.policy import ReasoningSummary, Verbosity
from protocol.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSettings:
    """Settings of a request. A request omits settings that the model's family does not support."""

    model: str
    conversation_id: str
    effort: str | None = None
    summary: ReasoningSummary = ReasoningSummary.AUTO
    verbosity: Verbosity | None = None
    supports_reasoning_summaries: bool | None = None
    """The user's setting; None for the default of the model's family."""
    sends_chosen_effort: bool = False
    """An effort that was chosen is sent whatever is known of the model."""
    subagent: str | None = None
    """What the request is for, where it is not the user's turn: `review`, `compact`."""
    live_chat: bool = False
    """Whether a Chat Completions answer comes in deltas and with its token counts, or in whole items."""


@dataclass(frozen=True, slots=True)
class ClientIdentity:
    """How requests present their sender."""

    originator: str
    user_agent: str
