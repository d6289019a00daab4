"""What users say about conversations beside their turns: names, and another state of the repository.

Names are in `session_index.jsonl`, in the form of codex 0.169, which reads and writes the same file. The rest is in
`thread_metadata.jsonl`. In both, the last line about a conversation counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from app_server.core.git.repository import Revision
from app_server.core.rollout.latest_lines import LatestLines

if TYPE_CHECKING:
    from protocol.base import Json

NAMES_FILE = "session_index.jsonl"
METADATA_FILE = "thread_metadata.jsonl"


class NotedNow(Struct, frozen=True):
    """The notes as they were at one moment."""

    names: Mapping[str, Mapping[str, Json]]
    metadata: Mapping[str, Mapping[str, Json]]

    def name(self, id: str) -> str | None:
        line = self.names.get(id.lower())
        return None if line is None else _name(line)

    def revision(self, id: str) -> Revision | None:
        """The state of the repository that replaces the stored one."""
        line = self.metadata.get(id.lower())
        match None if line is None else line.get("git_info"):
            case dict() as git:
                return Revision(_text(git, "sha"), _text(git, "branch"), _text(git, "origin_url"))
            case _:
                return None

    def named(self, wanted: Callable[[str], bool]) -> list[str]:
        """The ids of the conversations with such a name."""
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
        """Raises `OSError`."""
        self._names.append(id, {"thread_name": name, "updated_at": self._stamp()})

    def set_revision(self, id: str, revision: Revision) -> None:
        """Raises `OSError`."""
        git: dict[str, Json] = {
            "sha": revision.commit_hash,
            "branch": revision.branch,
            "origin_url": revision.repository_url,
        }
        self._metadata.append(id, {"git_info": git, "updated_at": self._stamp()})

    def forget(self, id: str) -> None:
        """Removes what is noted of a conversation. Raises `OSError`."""
        self._names.forget(id)
        self._metadata.forget(id)

    def _stamp(self) -> str:
        return datetime.fromtimestamp(self._now(), UTC).isoformat(timespec="milliseconds")[:-6] + "Z"


def _name(line: Mapping[str, Json]) -> str | None:
    return _text(line, "thread_name") or None


def _text(fields: Mapping[str, Json], key: str) -> str | None:
    value = fields.get(key)
    return value if isinstance(value, str) else None
