"""Parses stored lines into JSON objects, one at a time. Returns None for anything else; never raises.

It needs no pydantic models: a list of conversations is often the first request, and loading them takes longer than the
list.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from protocol.base import Json

RECORD_START = b'{"timestamp":'
_EDGES = b"\0 \t\r\xef\xbb\xbf"
"""Bytes around a record to ignore: NULs of a power failure, an editor's line end, a byte order mark."""


def parse_record(line: bytes) -> dict[str, Json] | None:
    """The JSON object of a line in any form."""
    line = line.strip(_EDGES)
    raw = parse_object(line)
    if raw is None:
        # A record that was appended to an incomplete one.
        start = line.rfind(RECORD_START)
        raw = parse_object(line[start:]) if start > 0 else None
    return raw


def is_blank(line: bytes) -> bool:
    return not line.strip(_EDGES)


def parse_object(data: bytes) -> dict[str, Json] | None:
    """The JSON object in these bytes, or None."""
    if not data.startswith(b"{"):
        return None
    try:
        raw = json.loads(data.decode("utf-8", "surrogatepass"))  # bytes would be searched for their encoding
    except (ValueError, RecursionError):
        return None
    return raw if isinstance(raw, dict) else None
