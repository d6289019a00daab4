"""The lines of a rollout: read as bytes with a maximum length, from either end, split into their parts without parsing,
and parsed into JSON objects. Nothing here raises for what a line says.

Lines in the form that this server and codex write are split; all others (another order of keys, spaces, a byte order
mark, a record after an incomplete one) have to be parsed. No pydantic models are needed: a list of conversations is
often the first request, and loading them takes longer than the list.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from protocol.base import Json

MAX_LINE_BYTES = 64 * 1024 * 1024
CHUNK_BYTES = 1024 * 1024
BLOCK = 256 * 1024
MOST_BYTES = 64 * 1024 * 1024
"""So much of the end of a file is looked at: what lies before is given up."""
MOST_KEPT = 8 * 1024 * 1024
"""No line that is looked for from the end of a file is longer."""

_CANONICAL = re.compile(
    rb'\{"timestamp":"[^"\\]{0,40}","type":"([a-z_]{1,20})","payload":(\{(?:"type":"([a-z_]{1,40})")?.*\})\}',
    re.DOTALL,
)
_NOTHING: tuple[bytes, bytes, None] = (b"", b"", None)


def cut_line(line: bytes) -> tuple[bytes, bytes, bytes | None]:
    """Splits a line in its usual form: the kind of record, the payload and the payload's `type`.

    Empty values if it has another form. The payload is not validated.
    """
    match = _CANONICAL.fullmatch(line)
    return match.groups() if match else _NOTHING  # type: ignore[return-value]  # the groups of the pattern


def read_lines(fd: int) -> Iterator[bytes]:
    """The lines of the file without line ends; TOO_LONG replaces one over the limit, before its end is looked for."""
    carry: list[bytes] = []
    carried = 0
    while chunk := os.read(fd, CHUNK_BYTES):
        head, *rest = chunk.split(b"\n")
        before, carried = carried, carried + len(head)
        if carried <= MAX_LINE_BYTES:
            carry.append(head)
        elif before <= MAX_LINE_BYTES:
            carry = []
            yield TOO_LONG
        if not rest:
            continue
        if carried <= MAX_LINE_BYTES:
            yield b"".join(carry)
        yield from rest[:-1]
        carry, carried = [rest[-1]], len(rest[-1])
    if 0 < carried <= MAX_LINE_BYTES:
        yield b"".join(carry)


TOO_LONG: Final = b"(too long)"
"""Replaces a line over the maximum length; it is not a record, so it counts as skipped."""


def lines_from_the_end(fd: int) -> Iterator[bytes]:
    """The lines of a file, the last one first; at most `MOST_BYTES` of it. TOO_LONG replaces one over `MOST_KEPT`."""
    end = os.fstat(fd).st_size
    begin = max(end - MOST_BYTES, 0)
    parts: list[bytes] = []  # of the line whose beginning is not read yet, the last one first
    size = 0
    while end > begin:
        start = max(end - BLOCK, begin)
        *lines, part = os.pread(fd, end - start, start).split(b"\n")
        end, size = start, size + len(part)
        parts = [*parts, part] if size <= MOST_KEPT else []
        if lines:
            yield b"".join(reversed(parts)) if size <= MOST_KEPT else TOO_LONG
            yield from reversed(lines[1:])
            parts, size = [lines[0]], len(lines[0])
    yield b"".join(reversed(parts)) if size <= MOST_KEPT else TOO_LONG


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
