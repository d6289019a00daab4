"""One line of a rollout as a value: a record with its kind, and its payload, which is parsed when somebody asks for it;
a line of a journal; and lines that take back earlier ones. Pure; nothing here raises for what a line says.

A line is one JSON object in whatever order of keys, also with members beside the payload that are not known here; a
byte order mark around it, and a record after an incomplete one, are found too. Lines of the paginated form have their
number in the file, an `ordinal`: there an item is one line, and the older events about it stand beside that line only
for readers which know nothing else. Rollouts are only appended to, so a thread is cut off by a line that says how many
of the lines before it count. It is an event of codex after 0.58 with a field of ours; 0.58 passes over it and still
sees what was taken back.
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

_NAME: Final = re.compile(rb'\{"type":"([a-z_]{1,40})"')
_NAMED_KINDS: Final = ("event_msg", "response_item")
OLDER_EVENTS: Final = frozenset(
    (
        *("user_message", "agent_message", "agent_reasoning", "agent_reasoning_raw_content"),
        *("entered_review_mode", "exited_review_mode"),
    )
)
"""Events that tell of items which the paginated form has as lines of their own."""
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
    ordinal: int | None = None
    """The number that the line has in the paginated form."""

    @classmethod
    def of(cls, kind: str, value: dict[str, Json], ordinal: int | None = None) -> StoredRecord:
        """Make the record of a payload that is parsed already."""
        name = value.get("type")
        return cls(kind, name if isinstance(name, str) else None, None, value, ordinal)

    @property
    def payload(self) -> bytes:
        """Return the payload as JSON, not validated."""
        return escaped_json(self._value) if self._text is None else self._text

    @property
    def is_repetition(self) -> bool:
        """Whether another line has all of what this event tells."""
        return self.ordinal is not None and self.kind == "event_msg" and self.name in OLDER_EVENTS

    def value(self) -> dict[str, Json] | None:
        """Parse the payload; None where it is damaged."""
        if self._value is None and self._text is not None:
            self._value = parse_object(self._text)
        return self._value


class _Line(Struct, gc=False):
    """The members of a line that count."""

    type: str
    payload: msgspec.Raw
    ordinal: int | None = None


_LINE: Final = msgspec.json.Decoder(_Line)


def read_record(line: bytes) -> StoredRecord | None:
    """Read a line in any form; None where it is no record."""
    try:
        found = _LINE.decode(line)
    except (ValueError, RecursionError):
        return _damaged_record(line)
    payload = bytes(found.payload)
    if not payload.startswith(b"{"):
        return None
    if match := _NAME.match(payload):
        return StoredRecord(found.type, match[1].decode(), payload, None, found.ordinal)
    if found.type not in _NAMED_KINDS:
        return StoredRecord(found.type, None, payload, None, found.ordinal)
    value = parse_object(payload)
    return None if value is None else StoredRecord.of(found.type, value, found.ordinal)


def _damaged_record(line: bytes) -> StoredRecord | None:
    """Read a line with bytes around its record, or one that was appended to an incomplete one."""
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
REVERT_MARK: Final = REVERTED.encode()
"""In lines that may take others back."""


def turns_taken_back(payload: Mapping[str, Json]) -> int:
    """Return how many turns such a line takes back that does not say which lines count, as codex wrote it up to 0.158;
    0 for another one.
    """
    turns = payload.get("num_turns")
    if "kept_lines" in payload or isinstance(turns, bool) or not isinstance(turns, int):
        return 0
    return max(turns, 0)


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
        """Take a line of this number. Returns False where it does not say which lines count, or what cannot be: the
        first line of a file has what the conversation is, and always counts.
        """
        keeps = payload.get("kept_lines")
        if not isinstance(keeps, int) or isinstance(keeps, bool) or not 1 <= keeps <= number:
            return False
        self.cut(keeps, number)
        return True

    def cut(self, keeps: int, number: int) -> None:
        """Take back the lines behind the first `keeps` ones, up to the line with this number."""
        while self._ranges and self._ranges[-1].stop >= keeps:
            keeps = min(keeps, self._ranges.pop().start)
        self._ranges.append(range(keeps, number + 1))

    def __bool__(self) -> bool:
        return bool(self._ranges)

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self._ranges, number, key=lambda each: each.start) - 1
        return at >= 0 and number in self._ranges[at]
