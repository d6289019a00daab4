"""Parses one line of a rollout into a record: its kind, and its payload, which is parsed on first use. Also parses the
lines of a journal, and finds which lines were reverted. Pure; nothing here raises for the content of a line.

A line is one JSON object. Its keys may be in any order, and unknown members beside the payload are ignored. A record is
also found inside a byte order mark, and after an incomplete record. A line of the paginated form has its number in the
file, the `ordinal`. In that form an item is one line; the older events about the item stand beside that line only for
readers that do not know the form.

Rollouts are append-only, so a thread is cut off by a line that says how many of the lines before it count. That line is
an event of codex after 0.58 with a field of this server. Codex 0.58 ignores the line and still sees what was reverted.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec
from msgspec import Struct

from app_server_protocol.encoding import Json, escaped_json
from app_server_protocol.responses import OtherItem, ResponseItem, parse_response_item
from app_server_protocol.rollout import StoredEvent

_NAME: Final = re.compile(rb'\{"type":"([a-z_]{1,40})"')
_NAMED_KINDS: Final = ("event_msg", "response_item")
OLDER_EVENTS: Final = frozenset(
    (
        *("user_message", "agent_message", "agent_reasoning", "agent_reasoning_raw_content"),
        *("entered_review_mode", "exited_review_mode"),
    )
)
"""Events about items that have lines of their own in the paginated form."""
_JOURNALED: Final = (
    rb'(?s)\{"timestamp":"[^"\\]{0,40}","type":"response_item","after":(\d{1,15}),"payload":(\{.*\})\}'
)
_RECORD_START: Final = b'{"timestamp":'
_EDGES: Final = b"\0 \t\r\xef\xbb\xbf"
"""Bytes around a record to ignore: NULs of a power failure, an editor's line end, a byte order mark."""
_DECODER: Final = msgspec.json.Decoder()


class RawLine(Struct, frozen=True, gc=False):
    number: int
    """Line number in the file, counted from 0."""
    begin: int
    """Offset of the first byte of the line in the file."""
    end: int
    """Offset of the next line in the file."""
    data: bytes
    """Content of the line without the line end; empty if the line is longer than the maximum."""
    whole: bool = True
    """Whether the line has a line end."""


def lines_behind(number: int, end: int, lines: Iterable[bytes]) -> Iterator[RawLine]:
    """Yield lines as if they were appended to a file. `number` is the number of the first one, and `end` its offset."""
    for line in lines:
        yield RawLine(number, end, end + len(line) + 1, line)
        number, end = number + 1, end + len(line) + 1


class StoredRecord(Struct, gc=False):
    kind: str
    name: str | None
    """The payload's `type`; None if it has none."""
    _text: bytes | None
    _value: dict[str, Json] | None = None
    ordinal: int | None = None
    """Line number that is stored in a line of the paginated form; None in other forms."""

    @classmethod
    def of(cls, kind: str, value: dict[str, Json], ordinal: int | None = None) -> StoredRecord:
        """Make a record from a payload that is parsed already."""
        name = value.get("type")
        return cls(kind, name if isinstance(name, str) else None, None, value, ordinal)

    @property
    def payload(self) -> bytes:
        """The payload as JSON, not validated."""
        return escaped_json(self._value) if self._text is None else self._text

    @property
    def is_repetition(self) -> bool:
        """Whether another line contains everything that this event says."""
        return self.ordinal is not None and self.kind == "event_msg" and self.name in OLDER_EVENTS

    def value(self) -> dict[str, Json] | None:
        """Return the parsed payload; None if it is damaged."""
        if self._value is None and self._text is not None:
            self._value = parse_object(self._text)
        return self._value


class _Line(Struct, gc=False):
    """The members of a line that are read."""

    type: str
    payload: msgspec.Raw
    ordinal: int | None = None


_LINE: Final = msgspec.json.Decoder(_Line)


def read_record(line: bytes) -> StoredRecord | None:
    """Parse a line of any form; None if it is not a record."""
    try:
        found = _LINE.decode(line)
    except (ValueError, RecursionError):
        return _damaged_record(line)
    payload = bytes(found.payload)
    if match := _NAME.match(payload):
        return StoredRecord(found.type, match[1].decode(), payload, None, found.ordinal)
    if not payload.startswith(b"{"):
        return None
    if found.type not in _NAMED_KINDS:
        return StoredRecord(found.type, None, payload, None, found.ordinal)
    value = parse_object(payload)
    return None if value is None else StoredRecord.of(found.type, value, found.ordinal)


def _damaged_record(line: bytes) -> StoredRecord | None:
    """Parse a line with extra bytes around its record, or a record that was appended to an incomplete one."""
    line = line.strip(_EDGES)
    raw = parse_object(line)
    if raw is None and (start := line.rfind(_RECORD_START)) > 0:
        raw = parse_object(line[start:])
    match raw:
        case {"type": str(named), "payload": dict() as value, **rest}:
            ordinal = rest.get("ordinal")
            return StoredRecord.of(named, value, ordinal if type(ordinal) is int else None)
        case _:
            return None


def parse_object(data: bytes) -> dict[str, Json] | None:
    """Parse the JSON object in these bytes; None if they are anything else."""
    if not data.startswith(b"{"):
        return None
    try:
        raw = _DECODER.decode(data)
    except (ValueError, RecursionError):
        try:  # lone surrogates and infinite numbers: only this slower parser accepts them
            raw = json.loads(data.decode("utf-8", "surrogatepass"))
        except (ValueError, RecursionError):
            return None
    return raw if isinstance(raw, dict) else None


def text_of(fields: Mapping[str, Json], name: str) -> str | None:
    """Return the value of a field that is a string; None if it is anything else."""
    value = fields.get(name)
    return value if isinstance(value, str) else None


class JournalLine(Struct, frozen=True):
    """An item that was emitted when the rollout had a size of `after` bytes."""

    after: int
    payload: bytes
    item: ResponseItem


def parse_journal_line(line: bytes) -> JournalLine | None:
    match = re.fullmatch(_JOURNALED, line)
    raw = parse_object(match[2]) if match else None
    item = parse_response_item(raw) if raw is not None else None
    if match is None or item is None or isinstance(item, OtherItem):
        return None
    return JournalLine(int(match[1]), match[2], item)


REVERTED: Final = "thread_rolled_back"
REVERT_MARK: Final = REVERTED.encode()
"""Mark of the lines that may revert other lines."""


def turns_taken_back(payload: Mapping[str, Json]) -> int:
    """Return how many turns a line reverts that counts turns instead of lines, as codex wrote it up to 0.158; 0 for any
    other line.
    """
    turns = payload.get("num_turns")
    if "kept_lines" in payload or isinstance(turns, bool) or not isinstance(turns, int):
        return 0
    return max(turns, 0)


def revert_line(keeps: int, turns: int) -> StoredEvent:
    """Return a line that reverts all but the first `keeps` lines of the file. `turns` is the number of turns after
    those lines.
    """
    body = f'{{"type":"{REVERTED}"}}'.encode()
    return StoredEvent(REVERTED, body, {"num_turns": turns, "kept_lines": keeps})


class RevertedRanges:
    """The lines of a file that were reverted and do not count. Lines that revert others are passed in the order of the
    file.
    """

    def __init__(self, before: RevertedRanges | None = None) -> None:
        """Begin with the reverted lines of `before`; None if none are known."""
        self._ranges: list[range] = [] if before is None else [*before._ranges]
        """Ranges of line numbers, in order and without overlap."""

    @classmethod
    def of(cls, bounds: Iterable[tuple[int, int]]) -> RevertedRanges:
        """Return the ranges with these `bounds`."""
        found = cls()
        found._ranges = [range(first, behind) for first, behind in bounds]
        return found

    def bounds(self) -> list[tuple[int, int]]:
        """Return the first line of each range, and the line after it."""
        return [(each.start, each.stop) for each in self._ranges]

    def take(self, payload: Mapping[str, Json], number: int) -> bool:
        """Apply a reverting line with this number. Return False if it does not say which lines count, or says something
        impossible: the first line of a file describes the conversation and always counts.
        """
        keeps = payload.get("kept_lines")
        if not isinstance(keeps, int) or isinstance(keeps, bool) or not 1 <= keeps <= number:
            return False
        self.cut(keeps, number)
        return True

    def cut(self, keeps: int, number: int) -> None:
        """Revert the lines after the first `keeps` ones, up to the line with this number."""
        while self._ranges and self._ranges[-1].stop >= keeps:
            keeps = min(keeps, self._ranges.pop().start)
        self._ranges.append(range(keeps, number + 1))

    def __bool__(self) -> bool:
        return bool(self._ranges)

    def __contains__(self, number: int) -> bool:
        if not self._ranges:
            return False
        at = bisect_right(self._ranges, number, key=lambda each: each.start) - 1
        return at >= 0 and number in self._ranges[at]
