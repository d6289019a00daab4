"""A command's output as the model is shown it: head and tail of what is long, and how it ended. Pure.

The numbers are the reference's, so that a model sees the same in both.
"""

from __future__ import annotations

import json

MAX_BYTES = 10 * 1024
MAX_LINES = 256
HEAD_LINES = MAX_LINES // 2
TAIL_LINES = MAX_LINES - HEAD_LINES
HEAD_BYTES = MAX_BYTES // 2


def shorten(text: str) -> str:
    """`text` itself where it is short; otherwise its beginning and end with a note of what is missing."""
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
    """Lines ended by a line feed only: a progress bar's carriage returns make no lines."""
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
    """What a command printed, with a line ahead of it where it ran out of time."""
    if timed_out:
        text = f"command timed out after {int(seconds * 1000)} milliseconds\n{text}"
    return shorten(text)


def command_result(output: str, exit_code: int, seconds: float) -> str:
    """The JSON text that answers a shell call."""
    duration = _tenth(seconds)
    body = json.dumps(output, ensure_ascii=False)
    return f'{{"output":{body},"metadata":{{"exit_code":{exit_code},"duration_seconds":{duration}}}}}'


def aborted_by_user(seconds: float, *, command: bool) -> str:
    """The output of a call that the user interrupted."""
    if command:
        return f"Wall time: {_tenth(seconds)} seconds\naborted by user"
    return f"aborted by user after {_tenth(seconds)}s"


def _tenth(seconds: float) -> str:
    return f"{seconds:.1f}"
