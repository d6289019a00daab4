"""The message history as clients name positions in it: which file it is, and how long. Fast to import."""

from __future__ import annotations

import os
import zlib
from pathlib import Path

from app_server.core.rollout.disk import open_for_reading
from app_server.core.rollout.rollout_errors import RolloutUnreadable

FILE_NAME = "history.jsonl"
MAX_HISTORY_BYTES = 256 * 1024 * 1024


def log_metadata(home: Path) -> tuple[int, int]:
    """The log id and the number of messages; zeros without a history."""
    fd = open_log(home / FILE_NAME)
    if fd is None:
        return 0, 0
    try:
        content = read_log(fd)
        return log_id_of(fd, content), content.count(b"\n")
    finally:
        os.close(fd)


def log_id_of(fd: int, content: bytes) -> int:
    """Fits into 53 bits, for clients with floating-point numbers. An inode alone may be reused after a truncation."""
    first_line = content[: content.find(b"\n") + 1]
    return (os.fstat(fd).st_ino & 0x1FFFFF) << 32 | zlib.crc32(first_line)


def open_log(path: Path) -> int | None:
    try:
        return open_for_reading(path)
    except (OSError, RolloutUnreadable):
        return None


def read_log(fd: int) -> bytes:
    parts = []
    at = 0
    while at < MAX_HISTORY_BYTES and (part := os.pread(fd, 1 << 20, at)):
        parts.append(part)
        at += len(part)
    return b"".join(parts)
