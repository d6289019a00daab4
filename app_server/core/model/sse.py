"""Server-sent events, incrementally: bytes in, frames out. Does no I/O.

Lines end with LF, CR or CRLF, wherever the chunks are cut; one byte order mark at the start is dropped;
comments and unknown fields are skipped. Data stays bytes: no UTF-8 sequence contains a line end, so whoever
decodes a frame gets the same as if the whole stream had been decoded.
"""

from __future__ import annotations

from typing import NamedTuple

BOM = b"\xef\xbb\xbf"

MAX_FRAME_BYTES = 256 * 1024 * 1024
"""A frame beyond this is an attack or an accident."""


class SseFrame(NamedTuple):
    event: str
    """Empty where the stream names none."""
    data: bytes


class FrameTooLong(Exception):
    """More bytes without an end of frame than anybody would send."""


class SseDecoder:
    """Feed it chunks in order; each call returns the frames that became complete."""

    __slots__ = ("_ends_with_lf", "_head", "_last_was_cr", "_parts", "_size")

    def __init__(self) -> None:
        self._head: bytes | None = b""
        """The first bytes, until it is known whether they are a mark."""
        self._parts: list[bytes] = []
        self._size = 0
        self._ends_with_lf = False
        self._last_was_cr = False

    def feed(self, data: bytes) -> list[SseFrame]:
        """Raises FrameTooLong."""
        if self._head is not None:
            data = self._without_mark(data)
        data = self._with_lf_only(data)
        if not data:
            return []
        complete = b"\n\n" in data or (self._ends_with_lf and data.startswith(b"\n"))
        self._ends_with_lf = data.endswith(b"\n")
        self._parts.append(data)
        self._size += len(data)
        if not complete:
            if self._size > MAX_FRAME_BYTES:
                raise FrameTooLong
            return []
        *blocks, rest = b"".join(self._parts).split(b"\n\n")
        # What ends in one line end may be followed by another one, which then ends the frame.
        self._parts, self._size = ([rest], len(rest)) if rest else ([], 0)
        self._ends_with_lf = rest.endswith(b"\n")
        return _frames(blocks)

    def close(self) -> list[SseFrame]:
        """The stream has ended. A last frame counts without its empty line: some servers leave it out."""
        rest = (self._head or b"") + b"".join(self._parts)
        self._parts, self._size, self._head = [], 0, None
        return _frames([rest])

    def _without_mark(self, data: bytes) -> bytes:
        head = (self._head or b"") + data
        if len(head) < len(BOM) and BOM.startswith(head):
            self._head = head
            return b""
        self._head = None
        return head.removeprefix(BOM)

    def _with_lf_only(self, data: bytes) -> bytes:
        if self._last_was_cr and data:
            self._last_was_cr = False
            data = data.removeprefix(b"\n")
        if b"\r" in data:
            self._last_was_cr = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        return data


def _frames(blocks: list[bytes]) -> list[SseFrame]:
    frames = []
    for block in blocks:
        frame = _frame(block)
        if frame is not None:
            frames.append(frame)
    return frames


def _frame(block: bytes) -> SseFrame | None:
    # The two forms that nearly all frames have come first: they are every token of every answer.
    first, _, rest = block.partition(b"\n")
    if first.startswith(b"data: ") and not rest and len(first) > 6:
        return SseFrame("", first[6:])
    if first.startswith(b"event: ") and rest.startswith(b"data: ") and b"\n" not in rest:
        return SseFrame(first[7:].decode("utf-8", "replace"), rest[6:])
    return _any_frame(block)


def _any_frame(block: bytes) -> SseFrame | None:
    event, data = b"", []
    for line in block.split(b"\n"):
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            data.append(value)
        elif name == b"event":
            event = value
    payload = b"\n".join(data)
    return SseFrame(event.decode("utf-8", "replace"), payload) if payload else None
