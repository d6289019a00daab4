"""Finds which lines of a file were reverted and do not count.

A reverting line of this server says how many lines before it count. A reverting line of codex up to 0.158 says how many
turns do not count, of the turns that have a message of the user, since the model's history is cut there. A file with
such a line is read a second time to find where its turns begin.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Final

from msgspec import Struct, field

from app_server.engine.storage.decode import RolloutDecoder
from app_server.engine.storage.line_reader import raw_lines
from app_server.engine.storage.record import (
    REVERT_MARK,
    REVERTED,
    RawLine,
    RevertedRanges,
    StoredRecord,
    read_record,
    text_of,
    turns_taken_back,
)
from app_server_protocol.encoding import Json
from app_server_protocol.engine.events import ItemCompleted, SessionEvent, TurnStarted
from app_server_protocol.engine.items import UserMessage
from app_server_protocol.rollout import ENVIRONMENT_HEAD

LOOKS_BACK: Final = 8
"""Number of lines before the first line of a turn that may belong to the turn."""


def find_reverts(lines: Iterable[RawLine], known: RevertedRanges, fd: int) -> RevertedRanges | None:
    """Return the reverted lines of an open file, if `lines` revert more than is known already; None if they do not."""
    found = None
    for raw in lines:
        payload = _revert_in(raw)
        if payload is None:
            continue
        if turns_taken_back(payload):
            return counted_reverts(fd)
        found = found or RevertedRanges(known)
        found.take(payload, raw.number)
    return found


def counted_reverts(fd: int, most: int | None = None) -> RevertedRanges:
    """Return the reverted lines of an open file in which some lines revert a number of turns. `most`: how many lines of
    the file are read; None for all of them.
    """
    found, turns = RevertedRanges(), _Turns()
    for raw in islice(raw_lines(fd), most):
        payload = _revert_in(raw)
        if payload is None:
            turns.take(raw)
            continue
        if count := turns_taken_back(payload):
            begun = turns.first_lines()
            if begun:
                found.cut(begun[-count] if count <= len(begun) else begun[0], raw.number)
        else:
            found.take(payload, raw.number)
        turns.forget(found)
    return found


def counting_lines(fd: int) -> Iterator[RawLine]:
    """Yield the lines of a file that were not reverted."""
    reverted_lines = find_reverts(raw_lines(fd), RevertedRanges(), fd) or RevertedRanges()
    return (raw for raw in raw_lines(fd) if raw.number not in reverted_lines)


def first_line_of_turn(before: deque[RawLine], number: int, *, implicit: bool) -> int:
    """Return the number of a turn's first line, which may come before the line with this number, by which the beginning
    of the turn is known. Earlier lines belong to the turn if they were stored for it: the description of a new
    environment for the model, and the user's message if the beginning is `implicit`, as in files without identity.
    Removes such lines from the end of `before`.
    """
    words_may_come = implicit
    while before and number > 1:
        text = _users_text(before[-1].data)
        if text is None or not (words_may_come or text.startswith(ENVIRONMENT_HEAD)):
            break
        words_may_come = words_may_come and text.startswith(ENVIRONMENT_HEAD)
        number = before.pop().number
    return number


def _users_text(line: bytes) -> str | None:
    """Return the text of a message with the role `user`; None for any other line."""
    record = read_record(line)
    match None if record is None or record.kind != "response_item" else record.value():
        case {"type": "message", "role": "user", "content": list(parts)}:
            return "".join(text_of(part, "text") or "" for part in parts if isinstance(part, dict))
        case _:
            return None


def _revert_in(raw: RawLine) -> Mapping[str, Json] | None:
    """Return the payload of a line that reverts others; None for any other line."""
    if not raw.whole or REVERT_MARK not in raw.data:
        return None
    record = read_record(raw.data)
    return (record.value() or {}) if record is not None and is_revert(record) else None


def is_revert(record: StoredRecord) -> bool:
    """Return whether a record reverts lines."""
    return record.kind == "event_msg" and record.name == REVERTED


class _Turn(Struct):
    id: str | None
    first_line: int
    of_user: bool = False
    """Whether the turn has a message of the user."""


class _Turns(Struct):
    """The turns in the lines so far that count."""

    decoder: RolloutDecoder = field(default_factory=lambda: RolloutDecoder(""))
    turns: list[_Turn] = field(default_factory=list)
    before: deque[RawLine] = field(default_factory=lambda: deque(maxlen=LOOKS_BACK))

    def take(self, raw: RawLine) -> None:
        record = read_record(raw.data)
        for event in () if record is None else self.decoder.take(raw.number, record):
            match event:
                case SessionEvent(turn_id=id, event=TurnStarted()):
                    first = first_line_of_turn(
                        self.before.copy(), raw.number, implicit=not self.decoder.explicit
                    )
                    self.turns.append(_Turn(id, first))
                case SessionEvent(event=ItemCompleted(item=UserMessage())) if self.turns:
                    self.turns[-1].of_user = True
                case _:
                    pass
        self.before.append(raw)

    def first_lines(self) -> list[int]:
        """Return the first line numbers of the turns that have a message of the user."""
        return [turn.first_line for turn in self.turns if turn.of_user]

    def forget(self, gone: RevertedRanges) -> None:
        """Remove the turns that were reverted, including an open one."""
        self.turns = [turn for turn in self.turns if turn.first_line not in gone]
        self.decoder = RolloutDecoder("")
        self.before.clear()
