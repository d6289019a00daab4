"""Token usage and rate limits of a conversation, in the form that its clients see."""

from __future__ import annotations

from msgspec import Struct

from app_server_protocol.engine.token_usage import RateLimitSnapshot, TokenUsage, TokenUsageInfo
from app_server_protocol.values import replace

LEAST_RATIO, MOST_RATIO = 0.5, 2.0
"""Bounds of the correction of estimates."""


class TokenCounts(Struct):
    """The usage so far and the provider's limits, in the form that clients see."""

    info: TokenUsageInfo | None = None
    rate_limits: RateLimitSnapshot | None = None
    context_is_full: bool = False
    """Whether the provider refused the conversation as too long, and no request has succeeded since."""
    uncounted: bool = False
    """Whether the provider gave no count with its last answer."""
    ratio: float = 1.0
    """Correction of estimates: tokens by the provider's first count for each estimated token."""
    calibrated: bool = False
    """Whether `ratio` comes from a count of the provider."""
    answered: int = 0
    """Size of the largest request that was answered in this session, as far as requests are measured, in tokens."""

    @property
    def total(self) -> TokenUsage:
        """The usage of all requests of the conversation."""
        return self.info.total_token_usage if self.info else TokenUsage()

    def add(self, usage: TokenUsage, context_window: int | None) -> None:
        total = {name: getattr(self.total, name) + getattr(usage, name) for name in TokenUsage.always}
        self.info = TokenUsageInfo(
            total_token_usage=TokenUsage(**total), last_token_usage=usage, model_context_window=context_window
        )

    def calibrate(self, estimated: int) -> None:
        """Set the ratio from the provider's first count. `estimated`: estimated tokens of the request that was
        counted.
        """
        if self.calibrated or self.uncounted or self.info is None or estimated <= 0:
            return
        self.calibrated = True
        counted = self.info.last_token_usage.input_tokens
        self.ratio = min(max(counted / estimated, LEAST_RATIO), MOST_RATIO)

    def fill(self, context_window: int) -> None:
        """Count the context window as full, as the provider reported."""
        last = TokenUsage(total_tokens=max(context_window - self.total.total_tokens, 0))
        self.info = TokenUsageInfo(
            total_token_usage=TokenUsage(total_tokens=context_window),
            last_token_usage=last,
            model_context_window=context_window,
        )

    def estimate(self, tokens: int, context_window: int | None) -> None:
        """Count the estimated size of the rebuilt history after a compaction."""
        self.context_is_full = False
        self.info = TokenUsageInfo(
            total_token_usage=self.total,
            last_token_usage=TokenUsage(total_tokens=tokens),
            model_context_window=context_window or (self.info.model_context_window if self.info else None),
        )

    def leave_context(self, before: TokenUsageInfo | None) -> None:
        """End requests with a context of their own: their usage counts, but the conversation's context is as before.
        Whether that context is full is known again after its next request.
        """
        self.context_is_full = False
        if self.info is not None:
            last = before.last_token_usage if before else TokenUsage()
            self.info = replace(self.info, last_token_usage=last)

    @property
    def in_context(self) -> int | None:
        """The tokens of the last request and its answer; None if there was none."""
        return self.info.last_token_usage.total_tokens if self.info else None
