"""Cuts texts for the model to size, formats the output of commands with the exit status, and estimates sizes in tokens.
Pure.

The model receives the head and the tail of a long text. The limits are those of codex 0.58, so that a model sees the
same in both.
"""

from __future__ import annotations

import json
from io import StringIO
from typing import Final

from msgspec import Struct

MAX_BYTES = 10 * 1024
MAX_LINES = 256


class OutputLimit(Struct, frozen=True):
    """Limit of one output that the model receives."""

    max_bytes: int
    max_lines: int | None
    """Maximum number of lines; None if only the bytes are limited."""


STANDARD_OUTPUT: Final = OutputLimit(MAX_BYTES, MAX_LINES)


def shorten(text: str, limit: OutputLimit = STANDARD_OUTPUT) -> str:
    """Return `text` if it is short; otherwise its head and tail, with a note about the omitted part."""
    size = len(text.encode("utf-8", "replace"))
    # Only line feeds end a line: the carriage returns of a progress bar do not.
    lines = list(StringIO(text, newline="\n"))
    total = len(lines)
    most = total if limit.max_lines is None else limit.max_lines
    if size <= limit.max_bytes and total <= most:
        return text
    head_lines = (most if limit.max_lines is not None else total + 1) // 2
    rest = lines[head_lines:]
    tail = rest[-(most - head_lines) :] if most > head_lines else []
    if omitted := len(rest) - len(tail):
        marker = f"\n[... omitted {omitted} of {total} lines ...]\n\n"
    else:
        marker = f"\n[... output truncated to fit {limit.max_bytes} bytes ...]\n\n"
    head = _first_bytes("".join(lines[:head_lines]), limit.max_bytes // 2) + marker
    left = max(limit.max_bytes - len(head.encode("utf-8", "replace")), 0)
    return f"Total output lines: {total}\n\n{head}{_last_bytes(''.join(tail), left)}"


def _first_bytes(text: str, limit: int) -> str:
    return text.encode("utf-8", "replace")[:limit].decode("utf-8", "ignore")


def _last_bytes(text: str, limit: int) -> str:
    return text.encode("utf-8", "replace")[-limit:].decode("utf-8", "ignore") if limit else ""


def command_output(text: str, limit: OutputLimit, *, timed_out: bool, seconds: float) -> str:
    """Return the output of a command, preceded by a line about the timeout if it timed out."""
    if timed_out:
        text = f"command timed out after {int(seconds * 1000)} milliseconds\n{text}"
    return shorten(text, limit)


def command_result(output: str, exit_code: int, seconds: float) -> str:
    """Return the output of a shell call as JSON text."""
    duration = _tenth(seconds)
    body = json.dumps(output, ensure_ascii=False)
    return f'{{"output":{body},"metadata":{{"exit_code":{exit_code},"duration_seconds":{duration}}}}}'


def aborted_by_user(seconds: float, *, command: bool) -> str:
    """Return the output of a call that the user interrupted."""
    if command:
        return f"Wall time: {_tenth(seconds)} seconds\naborted by user"
    return f"aborted by user after {_tenth(seconds)}s"


def _tenth(seconds: float) -> str:
    return f"{seconds:.1f}"


BYTES_PER_TOKEN = 4
"""Average number of bytes per token: an approximation that is sufficient for budgets in any language."""


def estimate_tokens(text: str) -> int:
    return -(-len(text.encode("utf-8", "replace")) // BYTES_PER_TOKEN)


def within_tokens(text: str, tokens: int) -> str:
    """Return `text` if it fits, else its head and tail, with a note about the number of omitted tokens."""
    dropped = estimate_tokens(text) - tokens
    if dropped <= 0:
        return text
    half = max(tokens, 0) * BYTES_PER_TOKEN // 2
    return f"{_first_bytes(text, half)}…{dropped} tokens truncated…{_last_bytes(text, half)}"
