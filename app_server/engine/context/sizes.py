"""Bounds of the model's input, by its context window: the size of instructions and tools, and how many tokens outputs,
documents, skills and compacted histories may take. Pure.

An unknown window counts as a large one.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from msgspec import Struct

from app_server.engine.context.text_for_model import (
    BYTES_PER_TOKEN,
    MAX_BYTES,
    STANDARD_OUTPUT,
    OutputLimit,
)

FULL_WINDOW: Final = 24_000
"""Smallest context window for the full prompt, in tokens."""

SMALL_WINDOW: Final = 8_000
"""Smallest context window for the small prompt, in tokens; a smaller window gets the tiny one."""

FULL_PERCENT: Final = 90
"""Part of a large context window, in percent, at which the history is compacted unless the user set another limit."""

ANSWER_ROOM: Final = 512
"""Room that a request leaves for the answer in a small window, in tokens."""

MOST_KEPT_TOKENS: Final = 20_000
"""Maximum size of the user's messages in a compacted history, in tokens; the same as in codex 0.58."""


class PromptSize(StrEnum):
    """Size of instructions and tools."""

    FULL = "full"
    SMALL = "small"
    TINY = "tiny"


class WindowBounds(Struct, frozen=True, kw_only=True):
    """The bounds for one context window, in tokens unless another unit is named."""

    window: int
    size: PromptSize
    """Size of instructions and tools, chosen by the user or the model's row, or else by the window."""
    output: OutputLimit
    """Maximum size of one output of a tool."""
    documents: int | None
    """Maximum size of AGENTS.md files; None if only the settings limit them."""
    skills: int | None
    """Maximum size of the skills' names; 0 for no skills, None for a list with descriptions."""
    mcp_tools: int | None
    """Maximum size of the descriptions of MCP tools; None if there is no limit."""
    compact_at: int
    kept_words: int
    """Maximum size of the user's messages in a compacted history."""
    summary: int
    """Maximum size of the summary in a compacted history."""
    request: int | None
    """Maximum size of a whole request, as estimated by this server; None if the provider decides."""


def size_of_window(window: int) -> PromptSize:
    """Return the size of prompt and tools that fits into a window."""
    if window >= FULL_WINDOW:
        return PromptSize.FULL
    return PromptSize.SMALL if window >= SMALL_WINDOW else PromptSize.TINY


def chosen_size(window: int, *choices: str | None) -> PromptSize:
    """Return the first size among the choices, skipping `auto` and None, or else the size for the window."""
    named = {size.value: size for size in PromptSize}
    sizes = (named[choice] for choice in choices if choice is not None and choice in named)
    return next(sizes, size_of_window(window))


def bounds_of(window: int, size: PromptSize, output_tokens: int | None = None) -> WindowBounds:
    """Return the bounds for a window. `output_tokens`: the user's limit of one output."""
    natural = size_of_window(window)
    output = STANDARD_OUTPUT
    if output_tokens is not None:
        output = OutputLimit(output_tokens * BYTES_PER_TOKEN, None)
    if natural is not PromptSize.FULL:
        most = MAX_BYTES if output_tokens is None else output.max_bytes
        output = OutputLimit(min(window // 8 * BYTES_PER_TOKEN, most), output.max_lines)
    return WindowBounds(
        window=window,
        size=size,
        output=output,
        documents=_documents(window, natural),
        skills=_skills(window, size),
        mcp_tools={PromptSize.FULL: None, PromptSize.SMALL: window // 4, PromptSize.TINY: 0}[size],
        compact_at=_compact_at(window, natural),
        kept_words=min(window // (4 if natural is PromptSize.FULL else 8), MOST_KEPT_TOKENS),
        summary=window // 6,
        request=None if natural is PromptSize.FULL else max(window - ANSWER_ROOM, window // 2),
    )


def _documents(window: int, natural: PromptSize) -> int | None:
    match natural:
        case PromptSize.FULL:
            return None
        case PromptSize.SMALL:
            return window // 10
        case PromptSize.TINY:
            return window // 12


def _skills(window: int, size: PromptSize) -> int | None:
    match size:
        case PromptSize.FULL:
            return None
        case PromptSize.SMALL:
            return window // 40
        case PromptSize.TINY:
            return 0


def _compact_at(window: int, natural: PromptSize) -> int:
    match natural:
        case PromptSize.FULL:
            return window * FULL_PERCENT // 100
        case PromptSize.SMALL:
            return window - max(1500, window // 5)
        case PromptSize.TINY:
            return max(window - max(900, window // 5), window // 2)
