"""Files and pipes that a command line names, read within a time and up to a size."""

from __future__ import annotations

import os
import select
import stat
import time
from pathlib import Path
from typing import Final

MOST_READ: Final = 4 << 20
"""Bytes of a file that a command line names."""

READ_WITHIN: Final = 10.0
"""Seconds for what a pipe brings, as of a shell's `<(command)`."""


def read_named(path: Path) -> bytes:
    """Read a file that a command line names: all of a regular one, or what a pipe brings in time. Raises OSError."""
    file = os.open(
        path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
    )  # a pipe without a writer holds up no opening
    try:
        mode = os.fstat(file).st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISFIFO(mode):
            raise OSError("expected a file or a pipe")
        return _read_in_time(file, time.monotonic() + READ_WITHIN)
    finally:
        os.close(file)


def _read_in_time(file: int, deadline: float) -> bytes:
    content = b""
    while len(content) <= MOST_READ:
        if not select.select([file], (), (), max(0.0, deadline - time.monotonic()))[0]:
            raise TimeoutError(f"nothing came through the pipe for {READ_WITHIN:g} s")
        piece = os.read(file, 1 << 16)
        if not piece:
            return content
        content += piece
    raise OSError(f"it has more than {MOST_READ} bytes")
