"""Parses server-sent events incrementally: bytes in, frames out. Does no I/O.

Lines end with LF, CR or CRLF, wherever the chunks are cut. One byte order mark at the start is dropped; comments and
unknown fields are skipped at once. Data stays bytes: no UTF-8 sequence contains a line end, so decoding a frame gives
the same text as decoding the whole stream. One call does work in proportion to its bytes, so its callers pass pieces of
bounded size.
"""

from __future__ import annotations

from msgspec import Struct

BOM = b"\xef\xbb\xbf"

MAX_EVENT_BYTES = 64 * 1024 * 1024
"""Maximum size of one event, and of one line, in bytes. A model's longest answer, repeated in one event with its
reasoning, has some megabytes; this limit is also that of one message of a client. Parsing needs about four times as
much memory.
"""


class SseFrame(Struct, frozen=True, gc=False):
    event: str
    """Name of the event; empty if the stream names none."""
    data: bytes


class EventTooLong(Exception):
    """An event without an end exceeds the size limit."""


class SseDecoder:
    """Decodes chunks, which must be fed in order; each call returns the frames that became complete."""

    __slots__ = ("_data", "_event", "_head", "_last_was_cr", "_limit", "_line", "_overflowed")

    def __init__(self, limit: int = MAX_EVENT_BYTES) -> None:
        self._limit = limit
        self._head: bytes | None = b""
        """The first bytes, until it is known whether they are a byte order mark; None afterwards."""
        self._line = bytearray()
        """The start of an incomplete line. It is one growing buffer: a list of one-byte pieces would take forty times
        as much memory.
        """
        self._event = b""
        self._data: bytes | bytearray | None = None
        self._last_was_cr = False
        self._overflowed = False

    def feed(self, data: bytes) -> list[SseFrame]:
        """Return the frames that became complete. Raises EventTooLong, after the frames before that event were
        returned.
        """
        frames: list[SseFrame] = []
        self._check(frames)
        if self._head is not None:
            data = self._without_mark(data)
        head, *lines = self._with_lf_only(data).split(b"\n")
        self._line += head
        if lines:
            *lines, rest = lines
            first, self._line = bytes(self._line), bytearray(rest)
            self._end_line(first, frames)
            for line in lines:
                # Floods consist of comments and of empty lines without an event, so these are skipped at once.
                if line[:1] != b":" and (line or self._data is not None):
                    self._end_line(line, frames)
                elif not line:
                    self._event = b""
        if len(self._line) > self._limit:
            self._overflow()
        self._check(frames)
        return frames

    def close(self) -> list[SseFrame]:
        """End the stream. A last frame counts even without its empty line: some servers omit it."""
        frames: list[SseFrame] = []
        self._check(frames)
        self._end_line(bytes(self._line + (self._head or b"")), frames)
        self._end_event(frames)
        self._head = None
        return frames

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

    def _end_line(self, line: bytes, frames: list[SseFrame]) -> None:
        if self._overflowed:
            return
        # The most frequent forms are checked first: each token of an answer has such lines.
        if line.startswith(b"data: "):
            self._add(line[6:])
        elif not line:
            self._end_event(frames)
        elif line.startswith(b"event: "):
            self._event = line[7:]
        else:
            name, _, value = line.partition(b":")
            if name == b"data":
                self._add(value)
            elif name == b"event":
                self._event = value

    def _add(self, value: bytes) -> None:
        if self._data is None:
            self._data = value
        else:
            if isinstance(self._data, bytes):
                self._data = bytearray(self._data)
            self._data += b"\n"
            self._data += value
        if len(self._data) > self._limit:
            self._overflow()

    def _end_event(self, frames: list[SseFrame]) -> None:
        if self._data:
            frames.append(SseFrame(self._event.decode("utf-8", "replace"), bytes(self._data)))
        self._event, self._data = b"", None

    def _check(self, frames: list[SseFrame]) -> None:
        if self._overflowed and not frames:
            raise EventTooLong

    def _overflow(self) -> None:
        self._overflowed = True
        self._line, self._data = bytearray(), None
