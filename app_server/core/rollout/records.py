"""One stored line as a value: a record of a rollout, an item of a journal, or a line that takes back earlier ones.
Pure; returns None for what is invalid, never raises.

Rollouts are only appended to, so a thread is cut off by a line that says how many of the lines before it count. It is
an event of codex after 0.58 with a field of ours; 0.58 passes over it and still sees what was taken back.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping

from msgspec import Struct

from app_server.core.rollout.rollout_lines import parse_object, parse_record
from protocol.base import Json
from protocol.responses import OtherItem, ResponseItem, parse_response_item
from protocol.rollout import RolloutLine, StoredEvent, parse_rollout_line

_JOURNALED = re.compile(
    rb'\{"timestamp":"[^"\\]{0,40}","type":"response_item","after":(\d{1,15}),"payload":(\{.*\})\}', re.DOTALL
)


def parse_line(line: bytes) -> RolloutLine | None:
    """The record of a line in any form."""
    try:
        stored = parse_rollout_line(parse_record(line))
    except RecursionError:
        return None
    return None if stored is None or isinstance(stored.payload, OtherItem) else stored


class JournalLine(Struct, frozen=True):
    """An item that was emitted when the rollout had `after` bytes."""

    after: int
    payload: bytes
    item: ResponseItem


def parse_journal_line(line: bytes) -> JournalLine | None:
    match = _JOURNALED.fullmatch(line)
    raw = parse_object(match[2]) if match else None
    item = parse_response_item(raw) if raw is not None else None
    if match is None or item is None or isinstance(item, OtherItem):
        return None
    return JournalLine(int(match[1]), match[2], item)


REVERTED = "thread_rolled_back"


def revert_line(keeps: int, turns: int) -> StoredEvent:
    """`keeps`: so many lines of the file count; `turns`: so many turns were behind them."""
    body = f'{{"type":"{REVERTED}"}}'.encode()
    return StoredEvent(REVERTED, body, {"num_turns": turns, "kept_lines": keeps})


class TakenBack:
    """Which lines of a file do not count. Such lines are handed in in the file's order."""

    def __init__(self, before: TakenBack | None = None) -> None:
        """`before`: those that are known already."""
        self._starts: list[int] = [] if before is None else [*before._starts]
        self._ends: list[int] = [] if before is None else [*before._ends]
        """Ranges that do not overlap, in order; a line in a range is not before its start and before its end."""

    def take(self, payload: Mapping[str, Json], number: int) -> bool:
        """A line of this number. False where it says nothing, or what cannot be: the first line of a file has what the
        conversation is, and always counts.
        """
        keeps = payload.get("kept_lines")
        if not isinstance(keeps, int) or isinstance(keeps, bool) or not 1 <= keeps <= number:
            return False
        while self._ends and self._ends[-1] >= keeps:
            keeps = min(keeps, self._starts.pop())
            self._ends.pop()
        self._starts.append(keeps)
        self._ends.append(number + 1)
        return True

    def __bool__(self) -> bool:
        return bool(self._starts)

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self._starts, number) - 1
        return at >= 0 and number < self._ends[at]
