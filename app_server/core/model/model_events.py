"""The events of a model's response, the same for all APIs."""

from __future__ import annotations

from protocol.events.turn import RateLimitSnapshot, TokenUsage
from protocol.records import dataclass
from protocol.responses import ResponseItem


@dataclass(frozen=True, slots=True)
class Created:
    """The response has begun."""

    response_id: str | None


@dataclass(frozen=True, slots=True)
class OutputItemAdded:
    """An item begins; its content follows in deltas."""

    item: ResponseItem


@dataclass(frozen=True, slots=True)
class OutputItemDone:
    """An item is complete. There may have been no `OutputItemAdded` and no delta for it."""

    item: ResponseItem


@dataclass(frozen=True, slots=True)
class OutputTextDelta:
    delta: str


@dataclass(frozen=True, slots=True)
class ReasoningSummaryTextDelta:
    delta: str
    summary_index: int


@dataclass(frozen=True, slots=True)
class ReasoningSummaryPartAdded:
    summary_index: int


@dataclass(frozen=True, slots=True)
class ReasoningContentDelta:
    delta: str
    content_index: int


@dataclass(frozen=True, slots=True)
class RateLimits:
    """The account's limits from the response headers; always the first event."""

    snapshot: RateLimitSnapshot


@dataclass(frozen=True, slots=True)
class Completed:
    """The response is complete. No event follows."""

    response_id: str | None
    usage: TokenUsage | None


ModelEvent = (
    Created
    | OutputItemAdded
    | OutputItemDone
    | OutputTextDelta
    | ReasoningSummaryTextDelta
    | ReasoningSummaryPartAdded
    | ReasoningContentDelta
    | RateLimits
    | Completed
)
