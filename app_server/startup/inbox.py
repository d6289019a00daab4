"""The client's bytes until the full server reads them itself: read ahead with plain system calls, nothing decided."""

from __future__ import annotations

import os
import select

READ_SIZE = 1 << 16


class Inbox:
    """One descriptor, read in the main thread."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.unread = b""
        """What was read and not yet taken out."""
        self.ended = False
        """The client has closed its end, or reads no more, which is the same to it."""

    @property
    def over(self) -> bool:
        """The client has left and no whole line of it is still to be served."""
        return self.ended and b"\n" not in self.unread

    def ready(self, seconds: float) -> bool:
        """Whether there is something to read, or an end, within so many seconds."""
        return bool(readable([self.fd], seconds))

    def read(self) -> None:
        """Waits for more. Its end is where there never was one, too."""
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
        """The first line without its end, waiting for it; None where the client ended before, or wrote too much."""
        while b"\n" not in self.unread:
            self.read()
            if self.ended or len(self.unread) > limit:
                return None
        line, _, self.unread = self.unread.partition(b"\n")
        return line

    def put_back(self, line: bytes) -> None:
        self.unread = line + b"\n" + self.unread


def readable(fds: list[int], seconds: float | None) -> list[int]:
    """Those with something to read, or an end; all of them where the system cannot tell."""
    try:
        return select.select(fds, [], [], seconds)[0]
    except (OSError, ValueError):
        return fds


def write_all(fd: int, data: bytes) -> bool:
    """False where nobody reads any more."""
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(fd, rest) :]
        except BlockingIOError:
            select.select([], [fd], [])
        except OSError:
            return False
    return True
