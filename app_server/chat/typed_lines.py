"""Lines of stdin, read one at a time and only when somebody wants one.

A terminal's lines are typed by a person, who may have begun one before the question that it would answer was shown.
What was typed until then can be marked as early.
"""

from __future__ import annotations

import os
import termios
from typing import TextIO

import anyio

from protocol.records import dataclass

READ_SIZE = 1 << 16


@dataclass(frozen=True, slots=True)
class TypedLine:
    text: str
    early: bool = False
    """Whether it was begun before `mark_early` was called."""


class TypedLines:
    """`ended` once there are no more. Waiting for a line can be cancelled."""

    def __init__(self, stdin: TextIO | None) -> None:
        """None: stdin is closed."""
        self._fd = -1 if stdin is None else stdin.fileno()
        self._encoding = "utf-8" if stdin is None else stdin.encoding
        self.ended = stdin is None
        self.typed = not self.ended and os.isatty(self._fd)
        """Whether a person types them."""
        self._read = b""
        """What is no whole line yet, or was not asked for."""
        self._early = 0
        """So many bytes of it were typed early."""
        self._never_waits = False
        """Whether stdin is a file."""

    async def next(self) -> TypedLine | None:
        """None at the end."""
        while b"\n" not in self._read and not self.ended:
            await self._until_readable()
            data = os.read(self._fd, READ_SIZE)
            self._read += data
            self.ended = not data
        line, end, self._read = self._read.partition(b"\n")
        early, self._early = self._early > 0, max(0, self._early - len(line + end))
        if not line and not end:
            return None
        return TypedLine(line.decode(self._encoding, "replace").removesuffix("\r"), early)

    def mark_early(self) -> None:
        """Take what a person has typed so far, also of a line that is not entered yet."""
        if not self.typed or self.ended:
            return
        before = termios.tcgetattr(self._fd)
        by_key = [*before[:3], before[3] & ~termios.ICANON, *before[4:6], list(before[6])]
        by_key[6][termios.VMIN] = by_key[6][termios.VTIME] = 0
        termios.tcsetattr(self._fd, termios.TCSANOW, by_key)
        try:
            while data := os.read(self._fd, READ_SIZE):
                self._read += data.replace(b"\0", b"")  # an end of input that was typed
        finally:
            termios.tcsetattr(self._fd, termios.TCSANOW, before)
        self._early = len(self._read)

    async def _until_readable(self) -> None:
        if not self._never_waits:
            try:
                await anyio.wait_readable(self._fd)
            except PermissionError:
                self._never_waits = True
