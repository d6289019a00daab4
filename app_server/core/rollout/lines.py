"""Stored bytes to stored records, one line at a time. Whatever is no record is None; nothing raises.

Lines as this server writes them can be cut up without being parsed; all others (another order of keys,
spaces, a byte order mark, a record glued to a torn one) are parsed whole.
"""

from __future__ import annotations

import re

from app_server.core.rollout.objects import parse_object, parse_record
from protocol.records import dataclass
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
