"""Opens files that a client names, for reading.

Pipes and devices are refused before they are opened: they could wait, never end, or do something by being opened. So
are the credentials in the server's home, whatever name leads to them, and what the system shows of processes, where the
server's own environment could be read. This keeps them from being handed on by mistake; a client has other ways.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from app_server.beneath import may_hold_secrets
from app_server.core.errors import CoreError

READING = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class FileRefused(CoreError):
    """The request cannot be served as sent; `kind` says why to programs."""

    def __init__(self, text: str, kind: str = "file") -> None:
        super().__init__(text)
        self.kind = kind


@contextmanager
def opened(path: str, home: str) -> Iterator[tuple[int, os.stat_result]]:
    """A regular file: its descriptor, and what is known of it. Raises FileRefused, OSError."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise not_a_file(path)
    descriptor = os.open(path, READING)
    try:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            raise not_a_file(path)
        if may_hold_secrets(descriptor, info, home):
            raise FileRefused(f"path `{path}` may hold secrets of this server and is not read", "secret")
        yield descriptor, info
    finally:
        os.close(descriptor)


def not_a_file(path: str) -> FileRefused:
    return FileRefused(f"path `{path}` is not a file", "not_a_file")
