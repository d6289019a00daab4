"""The journal beside a rollout: items that a client was told of, but whose turn in the rollout has not come.

Append-only while it holds something and emptied at once when it need not. An item may be in the journal and
in the rollout (a crash came between): each line says how long the rollout was, and what stands behind that
place with the same content is not taken twice.
"""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

from app_server.core.rollout.disk import Disk, end_of_text, open_for_append, open_for_reading
from app_server.core.rollout.errors import RolloutUnreadable
from app_server.core.rollout.lines import cut_line, parse_journal_line
from app_server.core.rollout.names import utc_timestamp
from protocol.responses import ResponseItem

MAX_JOURNAL_BYTES = 256 * 1024 * 1024


class Journal:
    """Written by the rollout's writer, under its lock."""

    def __init__(self, path: Path, disk: Disk) -> None:
        self._path = path
        self._disk = disk
        self._fd: int | None = None
        self._held: dict[int, ResponseItem] = {}
        """What is in the file, by identity; the items are kept alive so that no identity is used again."""

    def hold(
        self, items: Sequence[ResponseItem], rollout_size: Callable[[], int], now: Callable[[], datetime]
    ) -> None:
        """See to it that the file holds these items; raises `OSError` if it cannot."""
        new = [item for item in items if id(item) not in self._held]
        if new:
            self._append(new, rollout_size(), utc_timestamp(now()))
            self._held |= {id(item): item for item in new}
        elif not items and self._held:
            self._empty()

    def duplicate(self) -> list[int]:
        """A descriptor to bring it to the disk with, where it holds something."""
        return [os.dup(self._fd)] if self._fd is not None and self._held else []

    def discard(self) -> None:
        """Forget what an earlier server left."""
        self._path.unlink(missing_ok=True)

    def close(self) -> None:
        """Leaves a file only where it still holds something."""
        if self._fd is None:
            return
        if not self._held:
            self._path.unlink(missing_ok=True)
        os.close(self._fd)
        self._fd = None

    def _append(self, items: Sequence[ResponseItem], rollout_size: int, stamp: str) -> None:
        if self._fd is None:
            self._fd = open_for_append(self._disk, self._path, create=True)
        size = os.fstat(self._fd).st_size
        end = end_of_text(self._fd, size)
        lead = b"\n" if end and os.pread(self._fd, 1, end - 1) != b"\n" else b""
        head = f'{{"timestamp":"{stamp}","type":"response_item","after":{rollout_size},"payload":'
        data = lead + b"".join(head.encode() + item.to_json() + b"}\n" for item in items)
        if self._disk.write(self._fd, memoryview(data)) < len(data):
            self._disk.ftruncate(self._fd, size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _empty(self) -> None:
        assert self._fd is not None
        self._disk.ftruncate(self._fd, 0)
        self._held.clear()


def leftover_items(journal: Path, rollout_fd: int) -> list[ResponseItem]:
    """What a server that crashed had told but not recorded, in order; nothing that the rollout has too."""
    try:
        fd = open_for_reading(journal)
    except (OSError, RolloutUnreadable):
        return []
    with os.fdopen(fd, "rb") as file:
        data = file.read(MAX_JOURNAL_BYTES)
    lines = [line for raw in data.split(b"\n") if (line := parse_journal_line(raw))]
    if not lines:
        return []
    recorded = _payloads_from(rollout_fd, min(line.after for line in lines))
    left = []
    for line in lines:
        if recorded[line.payload]:
            recorded[line.payload] -= 1
        else:
            left.append(line.item)
    return left


def _payloads_from(fd: int, offset: int) -> Counter[bytes]:
    """The payloads of the lines that begin at or behind `offset`, counted."""
    parts = []
    while part := os.pread(fd, 1 << 20, offset):
        parts.append(part)
        offset += len(part)
    return Counter(cut_line(line)[1] for line in b"".join(parts).split(b"\n"))
