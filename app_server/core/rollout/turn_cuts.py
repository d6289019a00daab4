"""Where a thread is cut: so many lines of its file come before a turn."""

from __future__ import annotations

import os
from collections import deque
from pathlib import Path

from msgspec import Struct

from app_server.core.errors import ConversationError
from app_server.core.injected_messages import ENVIRONMENT_HEAD
from app_server.core.rollout.disk import describe, open_to_read_all
from app_server.core.rollout.objects import parse_record
from app_server.core.rollout.rollout_errors import RolloutUnreadable
from app_server.core.rollout.turn_index import TurnIndexes, TurnPlace
from app_server.core.rollout.turn_lines import RawLine, raw_lines
from protocol.base import Json

LOOKS_BACK = 8
"""So many lines before a turn's first may belong to it."""


class TurnNotFound(ConversationError):
    """The thread has no such turn."""

    def __init__(self, turn_id: str) -> None:
        super().__init__(f"turn not found: {turn_id[:100]}")


class TurnCut(Struct, frozen=True):
    keeps: int | None
    """So many lines come before the cut; None: all of them."""
    turns: int
    """So many turns are behind it."""


def cut_before(path: Path, conversation_id: str, indexes: TurnIndexes, turn_id: str) -> TurnCut:
    """Raises TurnNotFound and RolloutUnreadable. Slow for long files: use a thread."""
    return _cut(path, conversation_id, indexes, turn_id, behind=False)


def cut_behind(path: Path, conversation_id: str, indexes: TurnIndexes, turn_id: str) -> TurnCut:
    """Behind the turn, which is kept."""
    return _cut(path, conversation_id, indexes, turn_id, behind=True)


def _cut(path: Path, conversation_id: str, indexes: TurnIndexes, turn_id: str, *, behind: bool) -> TurnCut:
    try:
        fd = open_to_read_all(path)
        try:
            places = indexes.of(fd, conversation_id).places
            at = next((n for n, place in enumerate(places) if place.id == turn_id), None)
            if at is None:
                raise TurnNotFound(turn_id)
            at += behind
            if at == len(places):
                return TurnCut(None, 0)
            return TurnCut(_first_line(fd, places[at]), len(places) - at)
        finally:
            os.close(fd)
    except OSError as error:
        raise RolloutUnreadable(f"{path}: {describe(error)}") from None


def _first_line(fd: int, place: TurnPlace) -> int:
    """The number of the first line of a turn, with what was recorded for it before it began: what the model was sent of
    a new environment, and in files without identity the user's words.
    """
    before: deque[RawLine] = deque(raw_lines(fd, 0, 0, place.begin), maxlen=LOOKS_BACK)
    number, words_may_come = place.number, place.implicit
    while before and number > 1:
        text = _users_text(before[-1].data)
        if text is None or not (words_may_come or text.startswith(ENVIRONMENT_HEAD)):
            break
        words_may_come = words_may_come and text.startswith(ENVIRONMENT_HEAD)
        number = before.pop().number
    return number


def _users_text(line: bytes) -> str | None:
    """What a message in the name of the user says; None where the line has another kind."""
    match parse_record(line):
        case {
            "type": "response_item",
            "payload": {"type": "message", "role": "user", "content": list(parts)},
        }:
            return "".join(_text(part) for part in parts)
        case _:
            return None


def _text(part: Json) -> str:
    text = part.get("text") if isinstance(part, dict) else None
    return text if isinstance(text, str) else ""
