"""The write-ahead log beside a rollout: items that clients have received before the rollout could record them.

It is append-only while it holds items, and emptied as soon as it holds none. After a crash, an item may be in the
journal and in the rollout: each line contains the size of the rollout at that time, and recovery drops an item whose
content follows after that offset.
"""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

from app_server.core.errors import RolloutUnreadable
from app_server.core.rollout.disk import DiskCalls, end_of_text, open_for_append, open_for_reading
from app_server.core.rollout.lines import raw_lines
from app_server.core.rollout.record import parse_journal_line, read_record
from app_server.core.rollout.rollout_names import utc_timestamp
from protocol.responses import ResponseItem

MAX_JOURNAL_BYTES = 256 * 1024 * 1024


class RolloutJournal:
    """The rollout's writer writes it, under the lock of the rollout."""

    def __init__(self, path: Path, disk: DiskCalls) -> None:
        self._path = path
        self._disk = disk
        self._fd: int | None = None
        self._held: dict[int, ResponseItem] = {}
        """The items in the file by identity; the references prevent a reuse of identities."""

    def hold(
        self, items: Sequence[ResponseItem], rollout_size: Callable[[], int], now: Callable[[], datetime]
    ) -> None:
        """Ensure that the file holds these items; raises `OSError`."""
        new = [item for item in items if id(item) not in self._held]
        if new:
            self._append(new, rollout_size(), utc_timestamp(now()))
            self._held |= {id(item): item for item in new}
        elif not items and self._held:
            self._empty()

    def duplicate(self) -> list[int]:
        """Return a descriptor for flushing the file, if it holds items."""
        return [os.dup(self._fd)] if self._fd is not None and self._held else []

    def discard(self) -> None:
        """Remove the items of an earlier server."""
        self._path.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the file, and remove it if it holds no items."""
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
        if end < size:
            self._disk.ftruncate(self._fd, end)  # a line behind NULs could not be read
        lead = b"\n" if end and os.pread(self._fd, 1, end - 1) != b"\n" else b""
        head = f'{{"timestamp":"{stamp}","type":"response_item","after":{rollout_size},"payload":'
        data = lead + b"".join(head.encode() + item.to_json() + b"}\n" for item in items)
        if self._disk.write(self._fd, memoryview(data)) < len(data):
            self._disk.ftruncate(self._fd, end)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _empty(self) -> None:
        assert self._fd is not None
        self._disk.ftruncate(self._fd, 0)
        self._held.clear()


def leftover_items(journal: Path, rollout_fd: int) -> list[ResponseItem]:
    """Return the items that a crashed server emitted but did not record in the rollout, in order."""
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
    """Count the payloads of the lines that begin at or after `offset`."""
    records = (read_record(raw.data) for raw in raw_lines(fd, 1, offset))
    return Counter(record.payload for record in records if record is not None)
