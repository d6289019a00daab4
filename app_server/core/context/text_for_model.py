"""Texts for the model, cut to size: the output of commands with the exit status, and estimates in tokens. Pure.

Of a long text the model gets the head and the tail. The limits are those of codex 0.58, so that a model sees the same
in both.
"""

from __future__ import annotations

import json

MAX_BYTES = 10 * 1024
MAX_LINES = 256
HEAD_LINES = MAX_LINES // 2
TAIL_LINES = MAX_LINES - HEAD_LINES
HEAD_BYTES = MAX_BYTES // 2


def shorten(text: str) -> str:
    """Return `text` if it is short; otherwise its head and tail, with a note about the omitted part."""
    size, total = len(text.encode("utf-8", "replace")), _count_lines(text)
    if size <= MAX_BYTES and total <= MAX_LINES:
        return text
    return f"Total output lines: {total}\n\n{_head_and_tail(text, size, total)}"


def _head_and_tail(text: str, size: int, total: int) -> str:
    lines = _split_newlines(text)
    head = lines[:HEAD_LINES]
    rest = lines[HEAD_LINES:]
    tail = rest[-TAIL_LINES:]
    omitted = len(rest) - len(tail)
    if omitted:
        marker = f"\n[... omitted {omitted} of {total} lines ...]\n\n"
    elif size > MAX_BYTES:
        marker = f"\n[... output truncated to fit {MAX_BYTES} bytes ...]\n\n"
    else:
        marker = ""
    beginning = _first_bytes("".join(head), min(HEAD_BYTES, MAX_BYTES - len(marker))) + marker
    left = MAX_BYTES - len(beginning.encode("utf-8", "replace"))
    return beginning + _last_bytes("".join(tail), max(left, 0))


def _split_newlines(text: str) -> list[str]:
    """Split at line feeds only: the carriage returns of a progress bar do not end a line."""
    lines = [line + "\n" for line in text.split("\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


def _count_lines(text: str) -> int:
    return text.count("\n") + (not text.endswith("\n") and bool(text))


def _first_bytes(text: str, limit: int) -> str:
    return text.encode("utf-8", "replace")[:limit].decode("utf-8", "ignore")


def _last_bytes(text: str, limit: int) -> str:
    return text.encode("utf-8", "replace")[-limit:].decode("utf-8", "ignore") if limit else ""


def command_output(text: str, *, timed_out: bool, seconds: float) -> str:
    """Return the output of a command, preceded by a line about the timeout if it timed out."""
    if timed_out:
        text = f"command timed out after {int(seconds * 1000)} milliseconds\n{text}"
    return shorten(text)


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
"""An approximation that is sufficient for budgets in any language."""


def estimate_tokens(text: str) -> int:
    return -(-len(text.encode("utf-8", "replace")) // BYTES_PER_TOKEN)


def within_tokens(text: str, tokens: int) -> str:
    """Return `text` if it fits, else its head and tail, with a note about the number of omitted tokens."""
    dropped = estimate_tokens(text) - tokens
    if dropped <= 0:
        return text
    half = max(tokens, 0) * BYTES_PER_TOKEN // 2
    data = text.encode("utf-8", "replace")
    head, tail = data[:half].decode("utf-8", "ignore"), data[len(data) - half :].decode("utf-8", "ignore")
    return f"{head}…{dropped} tokens truncated…{tail}"
