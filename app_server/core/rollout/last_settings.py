"""The settings that a stored conversation last worked with: of its last turn, read from the end of the file. Pure but
for the reading.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from app_server.core.rollout.disk import describe, open_for_reading
from app_server.core.rollout.rollout_errors import RolloutUnreadable
from app_server.core.rollout.stored_lines import parse_line
from protocol.rollout import TurnContextItem

BLOCK = 256 * 1024
MARK = b'"type":"turn_context"'
MOST_BYTES = 64 * 1024 * 1024
"""So much of the end of a file is looked at: a turn whose lines are longer has settings that are given up."""


def last_turn_context(path: Path) -> TurnContextItem | None:
    """None where no turn was stored. Raises RolloutUnreadable."""
    try:
        fd = open_for_reading(path)
        try:
            for line in lines_from_the_end(fd):
                if (
                    MARK in line
                    and (stored := parse_line(line))
                    and isinstance(stored.payload, TurnContextItem)
                ):
                    return stored.payload
            return None
        finally:
            os.close(fd)
    except OSError as error:
        raise RolloutUnreadable(f"{path}: {describe(error)}") from None


def lines_from_the_end(fd: int) -> Iterator[bytes]:
    """The lines of a file, the last one first; at most `MOST_BYTES` of it."""
    end = os.fstat(fd).st_size
    begin = max(end - MOST_BYTES, 0)
    rest = b""
    while end > begin:
        start = max(end - BLOCK, begin)
        first, *lines = (os.pread(fd, end - start, start) + rest).split(b"\n")
        yield from reversed(lines)
        rest, end = first, start
    yield rest
