"""Tokens that requests to the model used, and limits of the account. Pure."""

from __future__ import annotations

from app_server_protocol.outgoing import EngineStruct


class TokenUsage(EngineStruct):
    """Tokens of one or more requests; the cached and the reasoning ones are part of input and output."""

    always = (
        "input_tokens",
        "cached_input_tokens",
        "output_tokens",
        "reasoning_output_tokens",
        "total_tokens",
    )
    input_tokens: int = 0
    cached_input_tokens: int = 0
    output_tokens: int = 0
    reasoning_output_tokens: int = 0
    total_tokens: int = 0


class TokenUsageInfo(EngineStruct):
    """Usage of the conversation and of its last request."""

    total_token_usage: TokenUsage
    last_token_usage: TokenUsage
    model_context_window: int | None = None


class RateLimitWindow(EngineStruct):
    used_percent: float
    window_minutes: int | None = None
    resets_at: int | None = None
    """Seconds since 1970."""


class RateLimitSnapshot(EngineStruct):
    primary: RateLimitWindow | None = None
    secondary: RateLimitWindow | None = None
