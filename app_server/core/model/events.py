"""What a model says while it answers, whichever API it was asked through."""

from __future__ import annotations

from protocol.events.tokens import RateLimitSnapshot, TokenUsage
from protocol.records import dataclass
from protocol.responses import ResponseItem


@dataclass(frozen=True, slots=True)
class Created:
    """The provider has begun to answer."""

    response_id: str | None


@dataclass(frozen=True, slots=True)
class OutputItemAdded:
    """An item begins; its content follows in deltas."""

    item: ResponseItem


@dataclass(frozen=True, slots=True)
class OutputItemDone:
    """An item is complete. It may never have been added, and no delta of it may have come."""

    item: ResponseItem


@dataclass(frozen=True, slots=True)
class OutputTextDelta:
    delta: str


@dataclass(frozen=True, slots=True)
class ReasoningSummaryDelta:
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
    """What the response's headers said of the account's limits; it comes before anything else."""

    snapshot: RateLimitSnapshot


@dataclass(frozen=True, slots=True)
class Completed:
    """The answer is whole. Nothing follows."""

    response_id: str | None
    usage: TokenUsage | None


ModelEvent = (
    Created
    | OutputItemAdded
    | OutputItemDone
    | OutputTextDelta
    | ReasoningSummaryDelta
    | ReasoningSummaryPartAdded
    | ReasoningContentDelta
    | RateLimits
    | Completed
)
