"""Buffers the client's input until the full server reads it, with plain system calls."""

from __future__ import annotations

import os
import select

READ_SIZE = 1 << 16


class Inbox:
    """One descriptor, read in the main thread."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.unread = b""
        """Bytes that were read but not taken."""
        self.ended = False
        """The client has closed its end, or no longer reads."""

    @property
    def exhausted(self) -> bool:
        """Tell whether the input has ended, and no whole line is left to serve."""
        return self.ended and b"\n" not in self.unread

    def ready(self, seconds: float) -> bool:
        """Tell whether there is input, or its end, within `seconds`."""
        return bool(readable([self.fd], seconds))

    def read(self) -> None:
        """Wait for more input. An invalid descriptor counts as the end."""
        while True:
            try:
                more = os.read(self.fd, READ_SIZE)
            except BlockingIOError:
                readable([self.fd], None)
                continue
            except OSError:
                more = b""
            break
        self.unread += more
        self.ended = not more

    def take_line(self, limit: int) -> bytes | None:
        """Wait for the first line and return it without its end; None if the input ends before, or exceeds `limit`."""
        while b"\n" not in self.unread:
            self.read()
            if self.ended or len(self.unread) > limit:
                return None
        line, _, self.unread = self.unread.partition(b"\n")
        return line

    def put_back(self, line: bytes) -> None:
        self.unread = line + b"\n" + self.unread


def readable(fds: list[int], seconds: float | None) -> list[int]:
    """Return the descriptors with input or an end; all of them if select(2) fails."""
    try:
        return select.select(fds, [], [], seconds)[0]
    except (OSError, ValueError):
        return fds
