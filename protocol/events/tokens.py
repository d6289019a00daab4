"""Tokens used and limits of the account."""

from typing import Literal

from pydantic import ConfigDict

from protocol.base import EngineModel, requires
from protocol.structs import EngineStruct


class TokenUsage(EngineModel):
    """Tokens of one or more requests; the cached and the reasoning ones are part of input and output."""

    model_config = ConfigDict(
        json_schema_extra=requires(
            "input_tokens", "cached_input_tokens", "output_tokens", "reasoning_output_tokens", "total_tokens"
        )
    )
    input_tokens: int = 0
    cached_input_tokens: int = 0
    output_tokens: int = 0
    reasoning_output_tokens: int = 0
    total_tokens: int = 0


class TokenUsageInfo(EngineModel):
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


class TokenCountEvent(EngineModel):
    """Usage or limits became known. At any place within a turn, several times; `info` is null until the first
    response was completed. After a compaction it restates the smaller usage."""

    type: Literal["token_count"] = "token_count"
    info: TokenUsageInfo | None = None
    rate_limits: RateLimitSnapshot | None = None
