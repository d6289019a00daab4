"""Token usage and rate limits of a conversation, as its clients are shown them."""

from __future__ import annotations

from msgspec import Struct

from protocol.events.turn import RateLimitSnapshot, TokenUsage, TokenUsageInfo
from protocol.structs import replace


class TokenCounts(Struct):
    """Usage so far and the provider's limits, as the client is shown them."""

    info: TokenUsageInfo | None = None
    rate_limits: RateLimitSnapshot | None = None
    context_is_full: bool = False
    """The provider refused the conversation as too long, and no request has succeeded since."""

    def add(self, usage: TokenUsage, context_window: int | None) -> None:
        total = plus(self.info.total_token_usage, usage) if self.info else usage
        self.info = TokenUsageInfo(
            total_token_usage=total, last_token_usage=usage, model_context_window=context_window
        )

    def fill(self, context_window: int) -> None:
        """Count the window as full, as the provider said."""
        before = self.info.total_token_usage if self.info else TokenUsage()
        last = TokenUsage(total_tokens=max(context_window - before.total_tokens, 0))
        self.info = TokenUsageInfo(
            total_token_usage=TokenUsage(total_tokens=context_window),
            last_token_usage=last,
            model_context_window=context_window,
        )

    def estimate(self, tokens: int, context_window: int | None) -> None:
        """Count what the rebuilt history is likely to cost after a compaction."""
        self.context_is_full = False
        total = self.info.total_token_usage if self.info else TokenUsage()
        self.info = TokenUsageInfo(
            total_token_usage=total,
            last_token_usage=TokenUsage(total_tokens=tokens),
            model_context_window=context_window or (self.info.model_context_window if self.info else None),
        )

    def leave_context(self, before: TokenUsageInfo | None) -> None:
        """Requests with a context of their own are over: they count, but the conversation's context is as before.
        Whether that one is full, its next request says again."""
        self.context_is_full = False
        if self.info is not None:
            last = before.last_token_usage if before else TokenUsage()
            self.info = replace(self.info, last_token_usage=last)

    @property
    def in_context(self) -> int | None:
        """Tokens that the last request and its answer took."""
        return self.info.last_token_usage.total_tokens if self.info else None


def plus(a: TokenUsage, b: TokenUsage) -> TokenUsage:
    return TokenUsage(**{name: getattr(a, name) + getattr(b, name) for name in TokenUsage.always})
