"""Parses stored lines into records, one at a time. Returns None for an invalid record; never raises.

Lines in the form that this server writes are split without parsing; all others (another order of keys, spaces, a byte
order mark, a record after an incomplete one) are parsed.
"""

from __future__ import annotations

import re

from msgspec import Struct

from app_server.core.rollout.objects import parse_object, parse_record
from protocol.responses import OtherItem, ResponseItem, parse_response_item
from protocol.rollout import RolloutLine, parse_rollout_line

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
