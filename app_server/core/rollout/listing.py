"""Which rollouts a home has, by their names alone, and where one of them is.

Only regular files count, outside the archive only in the folder of their day, so that names give the order. Links are
not followed.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path

from msgspec import Struct

from app_server.core.real_path import real_path
from app_server.core.rollout.pages import ListStart
from app_server.core.rollout.rollout_names import (
    ARCHIVED,
    OTHER_HOMES,
    SESSIONS,
    RolloutName,
    parse_rollout_name,
)
from app_server_protocol.ids import ConversationId

NAME_LENGTH = len("rollout-2026-01-02T03-04-05-.jsonl") + 36
STAMP, ID = slice(8, 27), slice(28, 64)
"""Where a name has them."""
SETTLED_NS = 2_000_000_000
"""A folder or file that changed this long ago: what changes it now gives it another time on every file system."""

_YEAR, _TWO = re.compile(r"\d{4}"), re.compile(r"\d{2}")


class RolloutFolder(Struct, frozen=True):
    path: str
    day: str
    """As its names begin; empty for the archive, which has names of all days."""


NamesIn = Callable[[str], list[str]]


def folders(home: Path, *, archived: bool = False, newest_first: bool = True) -> Iterator[RolloutFolder]:
    if archived:
        yield RolloutFolder(str(home / ARCHIVED), "")
        return
    sessions = str(home / SESSIONS)
    for year in _folders(sessions, _YEAR, newest_first):
        for month in _folders(f"{sessions}/{year}", _TWO, newest_first):
            of_month = f"{sessions}/{year}/{month}"
            for day in _folders(of_month, _TWO, newest_first):
                yield RolloutFolder(f"{of_month}/{day}", f"{year}-{month}-{day}")


def names_in(folder: str) -> list[str]:
    """Return the names of files that may be rollouts, sorted."""
    return sorted(
        _names(folder, lambda each: may_be_rollout(each.name) and each.is_file(follow_symlinks=False)),
        key=str.lower,
    )


def may_be_rollout(name: str) -> bool:
    return len(name) == NAME_LENGTH and name.startswith("rollout-") and name.endswith(".jsonl")


def walk(
    home: Path,
    *,
    archived: bool = False,
    newest_first: bool = True,
    start: ListStart | None = None,
    names_in: NamesIn = names_in,
) -> Iterator[tuple[RolloutName, Path]]:
    """Yield the rollouts in the order of their names. A folder is read when the walk comes to it."""
    for folder in folders(home, archived=archived, newest_first=newest_first):
        if start is not None and folder.day:
            day = start.key.value[:10]
            if folder.day > day if newest_first else folder.day < day:
                continue
        for file_name in _from(names_in(folder.path), start, newest_first):
            name = parse_rollout_name(file_name)
            if name is not None and name.stamp.startswith(folder.day):
                yield name, Path(folder.path, file_name)


def find(home: Path, conversation_id: ConversationId, *, archived: bool = False) -> Path | None:
    """Return the rollout of a conversation, also in the folder of another day."""
    end = f"-{conversation_id.lower()}.jsonl"
    if archived:
        return _ending(str(home / ARCHIVED), end)
    sessions = str(home / SESSIONS)
    likely = [f"{sessions}/{day:%Y/%m/%d}" for day in _days_of(conversation_id)]
    others = (folder.path for folder in folders(home) if folder.path not in likely)
    for folder in chain(likely, others, [sessions]):
        if (path := _ending(folder, end)) is not None:
            return path
    return None


def find_elsewhere(home: Path, conversation_id: ConversationId) -> Path | None:
    """Return the rollout of a conversation that is stored in one of the other homes which this one has links to."""
    for name in _names(str(home / OTHER_HOMES), lambda each: each.is_symlink()):
        other = Path(real_path(home / OTHER_HOMES / name))
        if (path := find(other, conversation_id)) is not None:
            return path
    return None


# --- parts
def _folders(folder: str, pattern: re.Pattern[str], newest_first: bool) -> list[str]:
    found = _names(
        folder, lambda each: bool(pattern.fullmatch(each.name)) and each.is_dir(follow_symlinks=False)
    )
    return sorted(found, reverse=newest_first)


def _names(folder: str, is_wanted: Callable[[os.DirEntry[str]], bool]) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in entries if is_wanted(entry)]
    except OSError:
        return []


def _from(names: list[str], start: ListStart | None, newest_first: bool) -> Iterator[str]:
    first, last = 0, len(names)
    if start is not None:
        edge = RolloutName(start.key.value, ConversationId(start.key.thread_id)).file_name.lower()
        if newest_first:
            bisect = bisect_right if start.included else bisect_left
            last = bisect(names, edge, key=str.lower)
        else:
            bisect = bisect_left if start.included else bisect_right
            first = bisect(names, edge, key=str.lower)
    positions = range(last - 1, first - 1, -1) if newest_first else range(first, last)
    return (names[position] for position in positions)


def _ending(folder: str, end: str) -> Path | None:
    ending = (name for name in names_in(folder) if name.lower().endswith(end))
    return next((Path(folder, name) for name in ending if parse_rollout_name(name) is not None), None)


def _days_of(conversation_id: ConversationId) -> list[datetime]:
    """Return the days, in any time zone, on which an id was made that says its time."""
    try:
        made = datetime.fromtimestamp(int(conversation_id.replace("-", "")[:12], 16) / 1000, UTC)
        return [made, made + timedelta(days=1), made - timedelta(days=1)]
    except (ValueError, OverflowError, OSError):
        return []


class FolderNames:
    """The names in folders. Those of the last few are kept while the folder's own time stays."""

    MOST_KEPT = 16

    def __init__(self, now: Callable[[], float]) -> None:
        """`now` gives seconds since 1970."""
        self._now = now
        self._kept: dict[str, tuple[int, list[str]]] = {}

    def __call__(self, folder: str) -> list[str]:
        try:
            changed = os.stat(folder, follow_symlinks=False).st_mtime_ns
        except OSError:
            return []
        kept = self._kept.get(folder)
        if kept is not None and kept[0] == changed:
            return kept[1]
        now = int(self._now() * 1e9)
        names = names_in(folder)
        if changed < now - SETTLED_NS:
            self._kept[folder] = (changed, names)
            while len(self._kept) > self.MOST_KEPT:
                self._kept.pop(next(iter(self._kept)), None)
        return names
