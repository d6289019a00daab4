"""The message for the notification program: one JSON object, its last argument. Pure.

Programs parse that argument, so it must stay valid JSON with all its fields. If it is too long for an argument, its
texts are shortened and end with an ellipsis.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from protocol.base import Json

MAX_ARGUMENT_BYTES = 120_000
"""Linux limits an argument to 128 KiB; with a longer one, the program would not start."""

ELLIPSIS = "…"
SMALLEST = len(json.dumps(ELLIPSIS, ensure_ascii=False).encode()) + 1
"""The size of an ellipsis in a list."""


def turn_complete(
    thread_id: str,
    turn_id: str,
    cwd: str,
    input_messages: Sequence[str],
    last_assistant_message: str | None,
) -> str:
    """The message for a completed turn. `input_messages` are the user's texts in it."""
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
    """The message in at most `limit` bytes, if its other fields permit. The last assistant message gets at most a
    third of the space for texts, and so does each message of the user, the first ones first.
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
    """`text`, shortened so that its JSON has at most `limit` bytes."""
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
    """JSON that is a valid argument: without lone surrogates, with NULs escaped."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
