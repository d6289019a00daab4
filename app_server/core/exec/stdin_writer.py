"""The input of a running command: a pipe, or its terminal.

Writes wait until the command reads, in their order; what waits is bounded. They end when the command does.
"""

from __future__ import annotations

import os
from dataclasses import field

import anyio

from protocol.records import dataclass

MAX_WAITING = 32 << 20
"""Bytes that wait for one command to read them."""
NOTICE_SECONDS = 0.1
"""How soon a write that waits notices the end of the command: a terminal does not signal it."""
END_OF_INPUT = b"\x04"
"""What a person types at a terminal: at the beginning of a line the end of input, else the end of what was typed."""


class InputClosed(Exception):
    """Nothing reads what is written."""


class InputFull(Exception):
    """More is waiting than is kept."""


@dataclass(slots=True)
class StdinWriter:
    """Owns the descriptor `number`."""

    number: int
    terminal: bool
    _closed: bool = False
    _waiting: int = 0
    _line_begins: bool = True
    _writing: anyio.Lock = field(default_factory=lambda: anyio.Lock(fast_acquire=True))

    async def write(self, data: bytes, *, last: bool = False) -> None:
        """Returns once the command has read it, or the system keeps it. `last` closes the input behind it. Raises
        InputClosed, InputFull.
        """
        if self._waiting + len(data) > MAX_WAITING:
            raise InputFull
        self._waiting += len(data)
        try:
            async with self._writing:
                await self._write(data)
                if last:
                    await self._end()
        finally:
            self._waiting -= len(data)

    async def abandon(self) -> None:
        """The command has ended: what waits is lost."""
        self._closed = True
        async with self._writing:
            self._close_number()

    async def _end(self) -> None:
        if self.terminal:
            await self._write(END_OF_INPUT if self._line_begins else END_OF_INPUT * 2)
        else:
            self._closed = True
            self._close_number()

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

    def _close_number(self) -> None:
        number, self.number = self.number, -1
        if number >= 0:
            os.close(number)
