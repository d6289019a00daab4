"""Token counts and limits of the account in the shapes of the thread API. Pure."""

from __future__ import annotations

import math

from protocol.events import tokens as engine
from protocol.v2.limits import RateLimitSnapshot, RateLimitWindow
from protocol.v2.thread import ThreadTokenUsage, TokenUsageBreakdown


def token_usage(info: engine.TokenUsageInfo) -> ThreadTokenUsage:
    return ThreadTokenUsage(
        total=_breakdown(info.total_token_usage),
        last=_breakdown(info.last_token_usage),
        model_context_window=info.model_context_window,
    )


def rate_limits(snapshot: engine.RateLimitSnapshot) -> RateLimitSnapshot:
    return RateLimitSnapshot(primary=_window(snapshot.primary), secondary=_window(snapshot.secondary))


def _breakdown(usage: engine.TokenUsage) -> TokenUsageBreakdown:
    return TokenUsageBreakdown(
        total_tokens=usage.total_tokens,
        input_tokens=usage.input_tokens,
        cached_input_tokens=usage.cached_input_tokens,
        output_tokens=usage.output_tokens,
        reasoning_output_tokens=usage.reasoning_output_tokens,
    )


def _window(window: engine.RateLimitWindow | None) -> RateLimitWindow | None:
    if window is None or not math.isfinite(window.used_percent):
        return None
    return RateLimitWindow(
        used_percent=round(window.used_percent),
        window_duration_mins=window.window_minutes,
        resets_at=window.resets_at,
    )
