"""What a notify program is told: one JSON object, its last argument. Pure.

Programs parse that argument, so it stays whole JSON with all its fields; where the system takes no argument of that
length, the texts in it are shortened, which an ellipsis shows.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from protocol.base import Json

MAX_ARGUMENT_BYTES = 120_000
"""Linux takes arguments of up to 128 KiB; beyond that the program would not be started at all."""

ELLIPSIS = "…"
SMALLEST = len(json.dumps(ELLIPSIS, ensure_ascii=False).encode()) + 1
"""What an ellipsis takes in a list."""


def turn_complete(
    thread_id: str,
    turn_id: str,
    cwd: str,
    input_messages: Sequence[str],
    last_assistant_message: str | None,
) -> str:
    """The notice that a turn has ended well. `input_messages` are the texts that the user sent for it."""
    return _dumps(
        {
            "type": "agent-turn-complete",
            "thread-id": thread_id,
            "turn-id": turn_id,
            "cwd": cwd,
            "input-messages": list(input_messages),
            "last-assistant-message": last_assistant_message,
        }
    )


def fit(message: str, limit: int) -> str:
    """A notice in at most `limit` bytes, if its other fields leave that much: the last message gets at most a third of
    what there is for texts, each message of the user as much, the first ones first.
    """
    if len(message.encode()) <= limit:
        return message
    notice: dict[str, Json] = json.loads(message)
    inputs, last = notice["input-messages"], notice["last-assistant-message"]
    room = limit - _size({**notice, "input-messages": [], "last-assistant-message": None})
    share = room // 3
    if last is not None:
        last = _cut(last, share)
        room -= _size(last)
    kept: list[str] = []
    for text in inputs:
        if room < 2 * SMALLEST:
            kept.append(ELLIPSIS)
            break
        kept.append(_cut(text, min(room - SMALLEST - 1, share)))
        room -= _size(kept[-1]) + 1
    return _dumps({**notice, "input-messages": kept, "last-assistant-message": last})


def _cut(text: str, limit: int) -> str:
    """`text`, shortened until its JSON takes no more than `limit` bytes."""
    if _size(text) <= limit:
        return text
    low, high = 0, min(len(text), max(limit, 0))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if _size(text[:middle] + ELLIPSIS) <= limit else (low, middle - 1)
    return text[:low] + ELLIPSIS


def _size(value: Json) -> int:
    return len(_dumps(value).encode())


def _dumps(value: Json) -> str:
    """JSON that can be an argument: no lone surrogates; a NUL is escaped in it."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
