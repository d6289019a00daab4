"""The lines of a rollout as bytes, with a maximum length: from any place in the file on, or from its end."""

from __future__ import annotations

import os
from collections.abc import Iterator

from app_server.core.errors import RolloutUnreadable
from app_server.core.rollout.record import RawLine, TakenBack, find_reverts

MAX_LINE_BYTES = 64 * 1024 * 1024
FIRST_BYTES = 16 * 1024
CHUNK_BYTES = 1024 * 1024
BLOCK = 256 * 1024
MOST_BYTES = 64 * 1024 * 1024
"""So much of the end of a file is looked at: what lies before is given up."""
MOST_KEPT = 8 * 1024 * 1024
"""No line that is looked for from the end of a file is longer."""


def raw_lines(fd: int, number: int = 0, begin: int = 0, end: int | None = None) -> Iterator[RawLine]:
    """Yield the lines between two places in the file, `end` None: up to its end; the last one may lack its line end.

    Raises `RolloutUnreadable` where the first line of a file is too long: no rollout begins so, and what follows may be
    a gigabyte of nothing.
    """
    end = os.fstat(fd).st_size if end is None else end
    carry: list[bytes] = []
    carried, place, size = 0, begin, FIRST_BYTES
    while place < end and (chunk := os.pread(fd, min(size, end - place), place)):
        place += len(chunk)
        size = CHUNK_BYTES
        *whole, rest = chunk.split(b"\n")
        for piece in whole:
            length = carried + len(piece)
            if carry:
                piece, carry = b"".join((*carry, piece)), []
            yield RawLine(number, begin, begin + length + 1, piece if length <= MAX_LINE_BYTES else b"")
            number, begin, carried = number + 1, begin + length + 1, 0
        carried += len(rest)
        if carried <= MAX_LINE_BYTES:
            carry.append(rest)
        elif number == 0:
            raise RolloutUnreadable("the file is not a rollout: its first line is too long")
        else:
            carry = []
    if carried:
        yield RawLine(number, begin, begin + carried, b"".join(carry), whole=False)


def lines_from_the_end(fd: int, mark: bytes, most: int = MOST_BYTES) -> Iterator[bytes]:
    """Yield the lines that contain `mark`, the last one first, of at most `most` bytes of the file's end. The mark,
    which has no line end, is searched in blocks: few lines have it.
    """
    end = os.fstat(fd).st_size
    first = max(end - most, 0)
    rest = b""  # the end of a line whose begin is not read yet
    while end > first:
        start = max(end - BLOCK, first)
        block = os.pread(fd, end - start, start) + rest
        rest, end = b"", start
        if start > first:
            rest, _, block = block.partition(b"\n")
            if len(rest) > MOST_KEPT:
                rest = b""
        at = len(block)
        while (at := block.rfind(mark, 0, at)) >= 0:
            begin, behind = block.rfind(b"\n", 0, at) + 1, block.find(b"\n", at)
            yield block[begin : behind if behind >= 0 else len(block)]
            at = begin


def counting_lines(fd: int) -> Iterator[RawLine]:
    """Yield the lines of a file but for those that were taken back."""
    taken_back = find_reverts(raw_lines(fd), TakenBack()) or TakenBack()
    return (raw for raw in raw_lines(fd) if raw.number not in taken_back)
