"""What a notify program is told: one JSON object, its last argument. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence

MAX_ARGUMENT_BYTES = 120_000
"""Linux takes arguments of up to 128 KiB; beyond that the program would not be started at all."""
MAX_TEXT_BYTES = 30_000
MAX_MESSAGES = 100


def turn_complete(
    thread_id: str,
    turn_id: str,
    cwd: str,
    input_messages: Sequence[str],
    last_assistant_message: str | None,
) -> str:
    """The notice that a turn has ended well. `input_messages` are the texts that the user sent for it."""
    inputs: list[str] = []
    room = MAX_ARGUMENT_BYTES - 2 * MAX_TEXT_BYTES
    for text in input_messages[:MAX_MESSAGES]:
        inputs.append(_cut(text, min(room, MAX_TEXT_BYTES)))
        room -= _size(inputs[-1])
    last = None if last_assistant_message is None else _cut(last_assistant_message, MAX_TEXT_BYTES)
    return _dumps(
        {
            "type": "agent-turn-complete",
            "thread-id": thread_id,
            "turn-id": turn_id,
            "cwd": cwd,
            "input-messages": inputs,
            "last-assistant-message": last,
        }
    )


def _cut(text: str, limit: int) -> str:
    """`text`, shortened until its JSON takes no more than `limit` bytes. An argument holds no NUL."""
    text = text.replace("\0", "")
    if _size(text) <= limit:
        return text
    low, high = 0, min(len(text), max(limit, 0))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if _size(text[:middle] + "…") <= limit else (low, middle - 1)
    return text[:low] + "…"


def _size(text: str) -> int:
    return len(_dumps(text).encode())


def _dumps(value: object) -> str:
    """JSON that can be an argument: no lone surrogates."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
