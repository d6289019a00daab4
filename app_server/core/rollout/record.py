"""One line of a rollout as a value: a record with its kind, and its payload, which is parsed when somebody asks for it;
a line of a journal; and lines that take back earlier ones. Pure; nothing here raises for what a line says.

Lines in the form that this server and codex write are cut without parsing; all others (another order of keys, spaces, a
byte order mark, a record after an incomplete one) are parsed. Rollouts are only appended to, so a thread is cut off by
a line that says how many of the lines before it count. It is an event of codex after 0.58 with a field of ours; 0.58
passes over it and still sees what was taken back.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec
from msgspec import Struct

from app_server_protocol.responses import OtherItem, ResponseItem, parse_response_item
from app_server_protocol.rollout import StoredEvent
from app_server_protocol.structs import Json, escaped_json

_CANONICAL: Final = re.compile(
    rb'\{"timestamp":"[^"\\]{0,40}","type":"([a-z_]{1,20})","payload":(\{(?:"type":"([a-z_]{1,40})")?.*\})\}',
    re.DOTALL,
)
_JOURNALED: Final = re.compile(
    rb'\{"timestamp":"[^"\\]{0,40}","type":"response_item","after":(\d{1,15}),"payload":(\{.*\})\}', re.DOTALL
)
_RECORD_START: Final = b'{"timestamp":'
_EDGES: Final = b"\0 \t\r\xef\xbb\xbf"
"""Bytes around a record to ignore: NULs of a power failure, an editor's line end, a byte order mark."""
_DECODER: Final = msgspec.json.Decoder()


class RawLine(Struct, frozen=True, gc=False):
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


def lines_behind(number: int, end: int, lines: Iterable[bytes]) -> Iterator[RawLine]:
    """Yield lines as if they stood in a file behind its last line, which ends there."""
    for line in lines:
        yield RawLine(number, end, end + len(line) + 1, line)
        number, end = number + 1, end + len(line) + 1


class StoredRecord(Struct, gc=False):
    kind: str
    name: str | None
    """The payload's `type`."""
    _text: bytes | None
    _value: dict[str, Json] | None = None

    @classmethod
    def of(cls, kind: str, value: dict[str, Json]) -> StoredRecord:
        """Make the record of a payload that is parsed already."""
        name = value.get("type")
        return cls(kind, name if isinstance(name, str) else None, None, value)

    @property
    def payload(self) -> bytes:
        """Return the payload as JSON, not validated."""
        return escaped_json(self._value) if self._text is None else self._text

    def value(self) -> dict[str, Json] | None:
        """Parse the payload; None where it is damaged."""
        if self._value is None and self._text is not None:
            self._value = parse_object(self._text)
        return self._value


def read_record(line: bytes) -> StoredRecord | None:
    """Read a line in any form; None where it is no record."""
    match = _CANONICAL.fullmatch(line)
    if match is not None:
        kind, payload, name = match.groups()
        if line.find(_RECORD_START, 1) >= 0 and parse_object(payload) is None:
            pass  # a record that was appended to an incomplete one
        elif name is not None:
            return StoredRecord(kind.decode(), name.decode(), payload)
        elif kind not in (b"event_msg", b"response_item"):
            return StoredRecord(kind.decode(), None, payload)
    line = line.strip(_EDGES)
    raw = parse_object(line)
    if raw is None and (start := line.rfind(_RECORD_START)) > 0:
        raw = parse_object(line[start:])  # a record that was appended to an incomplete one
    match raw:
        case {"type": str(named), "payload": dict() as value}:
            return StoredRecord.of(named, value)
        case _:
            return None


def parse_object(data: bytes) -> dict[str, Json] | None:
    """Parse the JSON object in these bytes; None for anything else."""
    if not data.startswith(b"{"):
        return None
    try:
        raw = _DECODER.decode(data)
    except (ValueError, RecursionError):
        try:  # lone surrogates and infinite numbers, which only the slower parser takes
            raw = json.loads(data.decode("utf-8", "surrogatepass"))
        except (ValueError, RecursionError):
            return None
    return raw if isinstance(raw, dict) else None


def text_of(fields: Mapping[str, Json], name: str) -> str | None:
    """Return the text of a field; None for anything else."""
    value = fields.get(name)
    return value if isinstance(value, str) else None


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


REVERTED: Final = "thread_rolled_back"
MARK: Final = REVERTED.encode()
"""In lines that may take others back."""


def revert_line(keeps: int, turns: int) -> StoredEvent:
    """Return a line by which `keeps` lines of the file count; so many turns were behind them."""
    body = f'{{"type":"{REVERTED}"}}'.encode()
    return StoredEvent(REVERTED, body, {"num_turns": turns, "kept_lines": keeps})


class TakenBack:
    """Lines of a file that do not count. Lines that say so are handed in in the file's order."""

    def __init__(self, before: TakenBack | None = None) -> None:
        """`before`: those that are known already."""
        self._ranges: list[range] = [] if before is None else [*before._ranges]
        """In order; they do not overlap."""

    def take(self, payload: Mapping[str, Json], number: int) -> bool:
        """Take a line of this number. Returns False where it says nothing, or what cannot be: the first line of a file
        has what the conversation is, and always counts.
        """
        keeps = payload.get("kept_lines")
        if not isinstance(keeps, int) or isinstance(keeps, bool) or not 1 <= keeps <= number:
            return False
        while self._ranges and self._ranges[-1].stop >= keeps:
            keeps = min(keeps, self._ranges.pop().start)
        self._ranges.append(range(keeps, number + 1))
        return True

    def __bool__(self) -> bool:
        return bool(self._ranges)

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self._ranges, number, key=lambda each: each.start) - 1
        return at >= 0 and number in self._ranges[at]


def find_reverts(lines: Iterable[RawLine], known: TakenBack) -> TakenBack | None:
    """Find which lines do not count, if these lines say so of more than is known."""
    found = None
    for raw in lines:
        record = read_record(raw.data) if raw.whole and MARK in raw.data else None
        if record is not None and record.kind == "event_msg" and record.name == REVERTED:
            found = found or TakenBack(known)
            found.take(record.value() or {}, raw.number)
    return found
