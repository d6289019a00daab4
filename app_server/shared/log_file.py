"""The log of a server that nobody watches: stderr is a file, of which one old one is kept."""

from __future__ import annotations

import os

MOST_BYTES = 10 << 20
OLD = ".old"

_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC


class LogFile:
    """Writes to stderr, and puts another file behind it when the present one is full."""

    def __init__(self, path: str, most: int = MOST_BYTES, fd: int = 2) -> None:
        self._path, self._most, self._fd = path, most, fd

    def write(self, data: bytes) -> int:
        """Append a line. Raises OSError."""
        if os.fstat(self._fd).st_size + len(data) > self._most:
            self._begin_anew()
        return os.write(self._fd, data)

    def _begin_anew(self) -> None:
        """Keep the file under its other name; all that writes to the descriptor goes on in the new one."""
        try:
            os.replace(self._path, self._path + OLD)
            fresh = os.open(self._path, _APPEND, 0o600)
        except OSError:
            return  # the log goes on in the old file
        try:
            os.dup2(fresh, self._fd)
        finally:
            os.close(fresh)
