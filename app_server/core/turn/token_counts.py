"""Token usage and rate limits of a conversation, as its clients are shown them."""

from __future__ import annotations

from msgspec import Struct

from app_server_protocol.events.turn import RateLimitSnapshot, TokenUsage, TokenUsageInfo
from app_server_protocol.structs import replace

LEAST_RATIO, MOST_RATIO = 0.5, 2.0
"""Bounds of the correction of estimates."""


class TokenCounts(Struct):
    """Usage so far and the provider's limits, as the client is shown them."""

    info: TokenUsageInfo | None = None
    rate_limits: RateLimitSnapshot | None = None
    context_is_full: bool = False
    """The provider refused the conversation as too long, and no request has succeeded since."""
    uncounted: bool = False
    """The provider gave no count with its last answer."""
    ratio: float = 1.0
    """Tokens by the provider's first count for one estimated token."""
    calibrated: bool = False
    """Whether the provider has given a count that `ratio` is from."""
    answered: int = 0
    """Tokens of the largest request that was answered in this session, as far as requests are measured."""

    @property
    def total(self) -> TokenUsage:
        """Return what all requests of the conversation took."""
        return self.info.total_token_usage if self.info else TokenUsage()

    def add(self, usage: TokenUsage, context_window: int | None) -> None:
        total = {name: getattr(self.total, name) + getattr(usage, name) for name in TokenUsage.always}
        self.info = TokenUsageInfo(
            total_token_usage=TokenUsage(**total), last_token_usage=usage, model_context_window=context_window
        )

    def calibrate(self, estimated: int) -> None:
        """Take the ratio from the provider's first count, which is of a request of so many estimated tokens."""
        if self.calibrated or self.uncounted or self.info is None or estimated <= 0:
            return
        self.calibrated = True
        counted = self.info.last_token_usage.input_tokens
        self.ratio = min(max(counted / estimated, LEAST_RATIO), MOST_RATIO)

    def fill(self, context_window: int) -> None:
        """Count the window as full, as the provider said."""
        last = TokenUsage(total_tokens=max(context_window - self.total.total_tokens, 0))
        self.info = TokenUsageInfo(
            total_token_usage=TokenUsage(total_tokens=context_window),
            last_token_usage=last,
            model_context_window=context_window,
        )

    def estimate(self, tokens: int, context_window: int | None) -> None:
        """Count what the rebuilt history is likely to cost after a compaction."""
        self.context_is_full = False
        self.info = TokenUsageInfo(
            total_token_usage=self.total,
            last_token_usage=TokenUsage(total_tokens=tokens),
            model_context_window=context_window or (self.info.model_context_window if self.info else None),
        )

    def leave_context(self, before: TokenUsageInfo | None) -> None:
        """End requests with a context of their own: they count, but the conversation's context is as before. Whether
        that one is full, its next request says again.
        """
        self.context_is_full = False
        if self.info is not None:
            last = before.last_token_usage if before else TokenUsage()
            self.info = replace(self.info, last_token_usage=last)

    @property
    def in_context(self) -> int | None:
        """Return the tokens that the last request and its answer took."""
        return self.info.last_token_usage.total_tokens if self.info else None
