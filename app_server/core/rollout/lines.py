"""Stored bytes to stored records, one line at a time. Whatever is no record is None; nothing raises.

Lines as this server writes them can be cut up without being parsed; all others (another order of keys,
spaces, a byte order mark, a record glued to a torn one) are parsed whole.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from protocol.base import Json
from protocol.responses import OtherItem, ResponseItem, parse_response_item
from protocol.rollout import RolloutLine, parse_rollout_line

_CANONICAL = re.compile(
    rb'\{"timestamp":"[^"\\]{0,40}","type":"([a-z_]{1,20})","payload":(\{(?:"type":"([a-z_]{1,40})")?.*\})\}',
    re.DOTALL,
)
_JOURNALED = re.compile(
    rb'\{"timestamp":"[^"\\]{0,40}","type":"response_item","after":(\d{1,15}),"payload":(\{.*\})\}', re.DOTALL
)
_NOTHING: tuple[bytes, bytes, None] = (b"", b"", None)
_RECORD_START = b'{"timestamp":'
_EDGES = b"\0 \t\r\xef\xbb\xbf"
"""What may surround a record: NULs of a power loss, another editor's line end, a byte order mark."""


def cut_line(line: bytes) -> tuple[bytes, bytes, bytes | None]:
    """A line in its usual form, cut up: the kind of record, the payload and the payload's `type`.

    Three times nothing if it has another form. The payload is not known to be JSON yet.
    """
    match = _CANONICAL.fullmatch(line)
    return match.groups() if match else _NOTHING  # type: ignore[return-value]  # the groups of the pattern


def parse_line(line: bytes) -> RolloutLine | None:
    """The record in a line of any form."""
    try:
        stored = parse_rollout_line(parse_record(line))
    except RecursionError:
        return None
    return None if stored is None or isinstance(stored.payload, OtherItem) else stored


def parse_record(line: bytes) -> dict[str, Json] | None:
    """The JSON object in a line of any form."""
    line = line.strip(_EDGES)
    raw = parse_object(line)
    if raw is None:
        # A record that a careless server appended to a torn one.
        start = line.rfind(_RECORD_START)
        raw = parse_object(line[start:]) if start > 0 else None
    return raw


def is_blank(line: bytes) -> bool:
    return not line.strip(_EDGES)


def parse_object(data: bytes) -> dict[str, Json] | None:
    """The JSON object that these bytes are, or None."""
    if not data.startswith(b"{"):
        return None
    try:
        raw = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return raw if isinstance(raw, dict) else None


@dataclass(frozen=True, slots=True)
class JournalLine:
    """An item that was told of when the rollout was `after` bytes long."""

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
