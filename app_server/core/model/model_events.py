"""The events of a model's response, the same for all APIs."""

from __future__ import annotations

from msgspec import Struct

from protocol.events.turn import RateLimitSnapshot, TokenUsage
from protocol.responses import ResponseItem


class Created(Struct, frozen=True):
    """The response has begun."""

    response_id: str | None


class OutputItemAdded(Struct, frozen=True):
    """An item begins; its content follows in deltas."""

    item: ResponseItem


class OutputItemDone(Struct, frozen=True):
    """An item is complete. There may have been no `OutputItemAdded` and no delta for it."""

    item: ResponseItem


class OutputTextDelta(Struct, frozen=True):
    delta: str


class ReasoningSummaryTextDelta(Struct, frozen=True):
    delta: str
    summary_index: int


class ReasoningSummaryPartAdded(Struct, frozen=True):
    summary_index: int


class ReasoningContentDelta(Struct, frozen=True):
    delta: str
    content_index: int


class RateLimits(Struct, frozen=True):
    """The account's limits from the response headers; always the first event."""

    snapshot: RateLimitSnapshot


class Completed(Struct, frozen=True):
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
