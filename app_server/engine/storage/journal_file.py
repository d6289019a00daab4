"""Writes the journal beside a rollout, a write-ahead log: items that clients received before the rollout could record
them, and the text so far of unfinished items.

The file is append-only while it contains something, and truncated as soon as it contains nothing. After a crash, an
item may be in both files: each line contains the size of the rollout at that time, and recovery (`journal`) drops the
items that the rollout has after that offset.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

from app_server.engine.storage.disk import DiskCalls, append_lines, open_for_append
from app_server.engine.storage.encode import TEXT
from app_server_protocol.responses import ResponseItem
from app_server_protocol.rollout import utc_timestamp

MAX_PIECES_BYTES = 1024 * 1024
"""Approximate maximum of text that waits for the journal, in bytes; later text is stored when its item ends."""


class RolloutJournal:
    """The journal of one rollout. The rollout's writer calls it, while it holds the lock of the rollout."""

    def __init__(self, path: Path, disk: DiskCalls) -> None:
        self._path = path
        self._disk = disk
        self._fd: int | None = None
        self._held: dict[int, ResponseItem] = {}
        """Items in the file by identity. The references prevent that an identity is reused."""
        self._pieces: list[bytes] = []
        """Lines of text that are not written yet."""
        self._growing = self._has_text = False
        self._end = -1
        """Size of the file after this writer's last write; if the size differs, the end of the file is checked."""

    def take_text(self, pieces: Sequence[bytes], *, growing: bool) -> None:
        """Take lines of text, which are written with the next items. `growing`: earlier text is still needed."""
        self._growing = growing
        if sum(map(len, self._pieces)) < MAX_PIECES_BYTES:
            self._pieces += pieces

    def hold(
        self, items: Sequence[ResponseItem], rollout_size: Callable[[], int], now: Callable[[], datetime]
    ) -> None:
        """Write to the file the items, and the text that was taken, that it lacks. Raises `OSError`."""
        if not items and not self._growing:
            self._pieces = []
        new = [item for item in items if id(item) not in self._held]
        if new or self._pieces:
            head, after = (
                f'{{"timestamp":"{utc_timestamp(now())}","type":',
                f',"after":{rollout_size()},"payload":',
            )
            of_item, of_text = (f'{head}"{kind}"{after}'.encode() for kind in ("response_item", TEXT))
            lines = [of_item + item.to_json() for item in new]
            self._append([*lines, *(of_text + piece for piece in self._pieces)])
            self._held |= {id(item): item for item in new}
            self._has_text, self._pieces = self._has_text or bool(self._pieces), []
        elif not items and not self._growing and (self._held or self._has_text):
            assert self._fd is not None
            self._disk.ftruncate(self._fd, 0)
            self._end = 0
            self._held.clear()
            self._has_text = False

    def _append(self, lines: Sequence[bytes]) -> None:
        if self._fd is None:
            self._fd = open_for_append(self._disk, self._path, create=True)
        known, self._end = self._end, -1
        self._end = append_lines(self._fd, b"".join(line + b"}\n" for line in lines), self._disk, known)

    def duplicate(self) -> list[int]:
        """Return a duplicate of the descriptor to flush, if the file contains items; else an empty list."""
        return [os.dup(self._fd)] if self._fd is not None and self._held else []

    def discard(self) -> None:
        """Remove the journal of an earlier server."""
        self._path.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the file, and remove it if it contains nothing."""
        if self._fd is None:
            return
        if not self._held and not self._has_text:
            self._path.unlink(missing_ok=True)
        os.close(self._fd)
        self._fd = None
