"""The lines of a rollout as the reader of turns takes them, from any place in the file on.

What the model remembers is most of a file, and says nothing of turns: these lines are recognised by their beginning and
are not parsed. Number and place of a line count every line, damaged ones too.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Final

from msgspec import Struct

from app_server.core.rollout.records import REVERTED, TakenBack
from app_server.core.rollout.rollout_lines import (
    CHUNK_BYTES,
    MAX_LINE_BYTES,
    RECORD_START,
    cut_line,
    parse_object,
    parse_record,
)
from app_server.core.rollout.stored_events import TURN_ITEM
from app_server.core.rollout.turn_events import Line

OF_TURNS: Final = frozenset(
    name.encode()
    for name in (
        *("task_started", "task_complete", "turn_aborted", TURN_ITEM, "user_message", "agent_message"),
        *("agent_reasoning", "agent_reasoning_raw_content", "entered_review_mode", "exited_review_mode"),
        REVERTED,
    )
)
"""Events whose content the reader of turns looks into."""

MARK: Final = REVERTED.encode()
"""In lines that may take others back."""


class RawLine(Struct, frozen=True):
    number: int
    """From 0."""
    begin: int
    """Where the line begins in the file."""
    end: int
    """Where the next one does."""
    data: bytes
    """Without the line end; empty where the line is longer than any that is taken."""
    whole: bool = True
    """Whether it has a line end."""


def raw_lines(fd: int, number: int, begin: int, end: int) -> Iterator[RawLine]:
    """The lines between two places in the file; the last one may lack its line end."""
    carry: list[bytes] = []
    carried, place = 0, begin
    while place < end and (chunk := os.pread(fd, min(CHUNK_BYTES, end - place), place)):
        place += len(chunk)
        *whole, rest = chunk.split(b"\n")
        for piece in whole:
            length = carried + len(piece)
            data = b"".join((*carry, piece)) if length <= MAX_LINE_BYTES else b""
            yield RawLine(number, begin, begin + length + 1, data)
            number, begin = number + 1, begin + length + 1
            carry, carried = [], 0
        carried += len(rest)
        carry = [*carry, rest] if carried <= MAX_LINE_BYTES else []
    if carried:
        yield RawLine(number, begin, begin + carried, b"".join(carry), whole=False)


def turn_line(raw: RawLine) -> Line | None:
    """The line for `TurnReader`; None where it is no record."""
    kind, payload, name = cut_line(raw.data)
    if kind and raw.data.find(RECORD_START, 1) < 0:
        if kind != b"event_msg":
            return raw.number, kind.decode(), {}
        if name in OF_TURNS:
            parsed = parse_object(payload)
            return None if parsed is None else (raw.number, "event_msg", parsed)
        if name is not None:
            return raw.number, "event_msg", {"type": name.decode()}
    match parse_record(raw.data):
        case {"type": str(kind_name), "payload": dict() as found}:
            return raw.number, kind_name, found
        case _:
            return None


def find_reverts(lines: Iterable[RawLine], known: TakenBack) -> TakenBack | None:
    """Which lines do not count, if these lines say so of more than is known."""
    found = None
    for raw in lines:
        if MARK in raw.data and raw.whole and (line := turn_line(raw)) is not None:
            number, kind, payload = line
            if kind == "event_msg" and payload.get("type") == REVERTED:
                found = found or TakenBack(known)
                found.take(payload, number)
    return found


def counting_lines(fd: int) -> Iterator[RawLine]:
    """The lines of a file but for those that were taken back."""
    size = os.fstat(fd).st_size
    taken_back = find_reverts(raw_lines(fd, 0, 0, size), TakenBack()) or TakenBack()
    return (raw for raw in raw_lines(fd, 0, 0, size) if raw.number not in taken_back)
