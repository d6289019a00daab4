"""Keeps head and tail of a command's output in bounded memory. Pure.

One line replaces the middle and gives its size.
"""

from __future__ import annotations

from collections import deque

STREAM_CAP = 1 << 20
"""Bytes kept of each stream, and of both together: half from the start, half from the end."""


class HeadTail:
    """The first and the last half of `cap` bytes of a stream."""

    __slots__ = ("_half", "_head", "_head_left", "_tail", "_tail_size", "total")

    def __init__(self, cap: int = STREAM_CAP) -> None:
        self.total = 0
        self._half = max(cap // 2, 1)
        self._head: list[bytes] = []
        self._head_left = self._half
        self._tail: deque[bytes] = deque()
        self._tail_size = 0

    def add(self, chunk: bytes) -> None:
        self.total += len(chunk)
        if self._head_left:
            part, chunk = chunk[: self._head_left], chunk[self._head_left :]
            self._head.append(part)
            self._head_left -= len(part)
        if not chunk:
            return
        self._tail.append(chunk[-self._half :])
        self._tail_size += len(self._tail[-1])
        while self._tail_size - len(self._tail[0]) >= self._half:
            self._tail_size -= len(self._tail.popleft())

    def value(self) -> bytes:
        """All output if it fits, otherwise head, a line about the gap, and tail."""
        head = b"".join(self._head)
        tail = b"".join(self._tail)[-self._half :]
        omitted = self.total - len(head) - len(tail)
        if omitted <= 0:
            return head + tail
        return b"%b\n[... %d bytes omitted ...]\n%b" % (head, omitted, tail)
