"""What users say about conversations beside their turns: names, and another state of the repository.

Names are in `session_index.jsonl`, in the form of codex 0.169, which reads and writes the same file. The rest is in
`thread_metadata.jsonl`. In both, the last line about a conversation counts. Lines are appended under a lock of the
home; only `forget` replaces a file, by one without the lines about a conversation. What was read is kept; a look at the
file shows whether it grew, was replaced or is gone.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct

from app_server.core.errors import RolloutUnreadable
from app_server.core.rollout import disk
from app_server.core.rollout.lines import raw_lines
from app_server.core.rollout.record import parse_object, text_of
from protocol.rollout import GitInfo
from protocol.structs import Json

MAX_BYTES = 64 * 1024 * 1024
"""So much of a file is read; what lies behind it does not count."""

_Place = tuple[int, int]
"""Device and inode of a file."""


class LatestLines:
    """One such file. All methods block; they may be called in several threads."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._mutex = threading.Lock()
        self._place: _Place | None = None
        self._read_to = 0
        self._stamp = 0
        self._lines: dict[str, dict[str, Json]] = {}

    def read(self) -> Mapping[str, Mapping[str, Json]]:
        """Return the last lines by conversation. A file that cannot be read has none."""
        with self._mutex:
            try:
                with disk.opened(self.path) as fd:
                    self._catch_up(fd)
            except RolloutUnreadable:
                self._start_anew(None)
            return self._lines

    def append(self, id: str, fields: Mapping[str, Json]) -> None:
        """Append a line about a conversation. Raises `OSError`."""
        line = json.dumps({"id": id, **fields}, separators=(",", ":")).encode()
        with disk.open_locked(self.path, disk.NOTES) as fd:
            disk.append_lines(fd, line + b"\n")
            os.fsync(fd)

    def forget(self, id: str) -> None:
        """Remove every line about this conversation. Raises `OSError`."""
        if id.lower() not in self.read():
            return
        with disk.home_lock(self.path.parent, disk.NOTES):
            fd = disk.open_for_reading(self.path)
            try:
                kept = [line for line in _whole_lines(fd, 0) if _id(parse_object(line)) != id.lower()]
            finally:
                os.close(fd)
            disk.replace_lines(self.path, kept)

    # --- with the mutex held
    def _catch_up(self, fd: int) -> None:
        status = os.fstat(fd)
        place = (status.st_dev, status.st_ino)
        if place != self._place or status.st_size < self._read_to:
            self._start_anew(place)
        elif status.st_mtime_ns == self._stamp and status.st_size == self._read_to:
            return
        self._stamp = status.st_mtime_ns
        changed: dict[str, dict[str, Json]] = {}
        for line in _whole_lines(fd, self._read_to):
            self._read_to += len(line) + 1
            fields = parse_object(line)
            id = _id(fields)
            if fields is not None and id is not None:
                changed[id] = fields
        if changed:
            self._lines = {**self._lines, **changed}  # who was given the old ones keeps them

    def _start_anew(self, place: _Place | None) -> None:
        self._lines = {}
        self._place, self._read_to, self._stamp = place, 0, 0


def _whole_lines(fd: int, start: int) -> Iterator[bytes]:
    """Yield the lines from `start` on; one without an end is still being written, or torn."""
    end = min(os.fstat(fd).st_size, MAX_BYTES)
    return (raw.data for raw in raw_lines(fd, 1, start, end) if raw.whole)


def _id(fields: Mapping[str, Json] | None) -> str | None:
    id = fields.get("id") if fields is not None else None
    return id.lower() if isinstance(id, str) else None


NAMES_FILE = "session_index.jsonl"
METADATA_FILE = "thread_metadata.jsonl"
NOTED_GIT = {"commit_hash": "sha", "branch": "branch", "repository_url": "origin_url"}
"""What the state of a repository is called, here and in the file."""


class NotedNow(Struct, frozen=True):
    """The notes as they were at one moment."""

    names: Mapping[str, Mapping[str, Json]]
    metadata: Mapping[str, Mapping[str, Json]]

    def name(self, id: str) -> str | None:
        line = self.names.get(id.lower())
        return None if line is None else _name(line)

    def revision(self, id: str) -> GitInfo | None:
        """Return the state of the repository that replaces the stored one."""
        line = self.metadata.get(id.lower())
        match None if line is None else line.get("git_info"):
            case dict() as git:
                return GitInfo(**{name: text_of(git, noted) for name, noted in NOTED_GIT.items()})
            case _:
                return None

    def named(self, wanted: Callable[[str], bool]) -> list[str]:
        """Return the ids of the conversations with such a name."""
        return [id for id, line in self.names.items() if (name := _name(line)) is not None and wanted(name)]


class ThreadNotes:
    """The notes of one home. All methods block; they may be called in several threads."""

    def __init__(self, home: Path, now: Callable[[], float]) -> None:
        """`now` gives seconds since 1970."""
        self._names = LatestLines(home / NAMES_FILE)
        self._metadata = LatestLines(home / METADATA_FILE)
        self._now = now

    def read(self) -> NotedNow:
        return NotedNow(self._names.read(), self._metadata.read())

    def set_name(self, id: str, name: str) -> None:
        """Name a conversation. Raises `OSError`."""
        self._names.append(id, {"thread_name": name, "updated_at": self._stamp()})

    def set_revision(self, id: str, revision: GitInfo) -> None:
        """Note another state of the repository. Raises `OSError`."""
        git = {noted: getattr(revision, name) for name, noted in NOTED_GIT.items()}
        self._metadata.append(id, {"git_info": git, "updated_at": self._stamp()})

    def forget(self, id: str) -> None:
        """Remove what is noted of a conversation. Raises `OSError`."""
        self._names.forget(id)
        self._metadata.forget(id)

    def _stamp(self) -> str:
        return datetime.fromtimestamp(self._now(), UTC).isoformat(timespec="milliseconds")[:-6] + "Z"


def _name(line: Mapping[str, Json]) -> str | None:
    return text_of(line, "thread_name") or None
