"""Input and output of a running command: what is written to it, what is kept of its output.

Writes wait until the command reads, in their order; what waits is bounded. They end when the command does. Of the
output head and tail are kept; one line replaces the middle and gives its size.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections import deque

import anyio
import msgspec
from msgspec import Struct

from app_server.core.errors import InputClosed, InputFull

READ_SIZE = 1 << 18
F_SETPIPE_SZ = 1031
"""Linux: makes pipes as large as one read, so that large output arrives in few pieces."""


def enlarge(number: int) -> None:
    """Make a pipe as large as one read, if the system allows it."""
    with contextlib.suppress(OSError):  # another system, or the user's share of pipe memory is used up
        fcntl.fcntl(number, F_SETPIPE_SZ, READ_SIZE)


MAX_WAITING = 32 << 20
"""Bytes that wait for one command to read them."""
NOTICE_SECONDS = 0.1
"""How soon a write that waits notices the end of the command: a terminal does not signal it."""
END_OF_INPUT = b"\x04"
"""What a person types at a terminal: at the beginning of a line the end of input, else the end of what was typed."""


class StdinWriter(Struct):
    """The input of a command. It owns the descriptor `number`."""

    number: int
    terminal: bool
    _closed: bool = False
    _waiting: int = 0
    _line_begins: bool = True
    _writing: anyio.Lock = msgspec.field(default_factory=lambda: anyio.Lock(fast_acquire=True))

    def __post_init__(self) -> None:
        os.set_blocking(self.number, False)

    async def write(self, data: bytes, *, last: bool = False) -> None:
        """Return once the command has read it, or the system keeps it. `last` closes the input behind it. Raises
        InputClosed, InputFull.
        """
        if self._waiting + len(data) > MAX_WAITING:
            raise InputFull
        self._waiting += len(data)
        try:
            async with self._writing:
                await self._write(data)
                if last and self.terminal:
                    await self._write(END_OF_INPUT if self._line_begins else END_OF_INPUT * 2)
                self._closed = self._closed or (last and not self.terminal)
        finally:
            self._waiting -= len(data)
            if self._closed:
                self.abandon()

    def abandon(self) -> None:
        """Close the input: what waits is lost."""
        self._closed = True
        if not self._writing.locked():  # else who writes does it, as soon as that is noticed
            number, self.number = self.number, -1
            if number >= 0:
                os.close(number)

    async def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        while True:
            if self._closed:
                raise InputClosed
            if not rest:
                break
            try:
                rest = rest[os.write(self.number, rest) :]
            except BlockingIOError:
                with anyio.move_on_after(NOTICE_SECONDS):
                    await anyio.wait_writable(self.number)
            except OSError as error:  # nobody has the other end open
                raise InputClosed from error
        if data:
            self._line_begins = data.endswith((b"\n", b"\r", END_OF_INPUT))


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
        """Return all output if it fits, otherwise head, a line about the gap, and tail."""
        head = b"".join(self._head)
        tail = b"".join(self._tail)[-self._half :]
        omitted = self.total - len(head) - len(tail)
        if omitted <= 0:
            return head + tail
        return b"%b\n[... %d bytes omitted ...]\n%b" % (head, omitted, tail)
