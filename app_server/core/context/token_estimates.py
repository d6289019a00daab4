"""Estimates the size of text in tokens, and truncates text to such a size. Pure."""

from __future__ import annotations

BYTES_PER_TOKEN = 4
"""An approximation that is sufficient for budgets in any language."""


def estimate_tokens(text: str) -> int:
    return -(-len(text.encode("utf-8", "replace")) // BYTES_PER_TOKEN)


def within_tokens(text: str, tokens: int) -> str:
    """`text` if it fits, else its head and tail, with a note about the number of omitted tokens."""
    dropped = estimate_tokens(text) - tokens
    if dropped <= 0:
        return text
    half = max(tokens, 0) * BYTES_PER_TOKEN // 2
    data = text.encode("utf-8", "replace")
    head, tail = data[:half].decode("utf-8", "ignore"), data[len(data) - half :].decode("utf-8", "ignore")
    return f"{head}…{dropped} tokens truncated…{tail}"
