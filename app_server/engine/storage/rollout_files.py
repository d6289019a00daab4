"""Lists the rollouts of a home by their file names alone, and finds the file of one conversation.

Only regular files count; links are not followed. A rollout outside of the archive counts only in the folder of its day,
so that the names give the order. Conversations are ordered by the time in their ids, which is at most a day away from
the day of the folder. If a conversation has several files, the newest one is returned.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Final

from msgspec import Struct

from app_server.engine.storage.pagination import ListStart
from app_server.engine.storage.rollout_names import (
    ARCHIVED,
    OTHER_HOMES,
    SESSIONS,
    RolloutName,
    parse_rollout_name,
    started_at,
)
from app_server.engine.support.real_path import real_path
from app_server_protocol.ids import ConversationId

NAME_LENGTH = len("rollout-2026-01-02T03-04-05-.jsonl") + 36
SEGMENT_LENGTH = NAME_LENGTH + 37
STAMP, ID = slice(8, 27), slice(28, 64)
"""Positions of the time stamp and of the id in a file name."""
DAYS_APART = 3
"""Limit of the difference between the day of a conversation's id and the day of its folder: the difference is
smaller.
"""
NO_SEGMENTS: Final[Mapping[str, Path]] = {}
SETTLED_NS = 2_000_000_000
"""Age in nanoseconds after which a change of a folder or file is settled. On every file system, a later change then
gives it another modification time.
"""

_YEAR, _TWO = re.compile(r"\d{4}"), re.compile(r"\d{2}")


class RolloutFolder(Struct, frozen=True):
    path: str
    day: str
    """Day of the folder, with which the time stamps in its file names begin; empty for the archive, which has names of
    all days.
    """


class ListedName(Struct, frozen=True, order=True, gc=False):
    """The first file of a conversation in a folder. Such names sort by the start of the conversation."""

    started: str
    id: str
    file_name: str


NamesIn = Callable[[str], Sequence[ListedName]]
SegmentsIn = Callable[[str], Sequence[tuple[RolloutName, Path]]]


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


def names_in(folder: str) -> list[ListedName]:
    """Return the first files of the conversations in a folder, in order."""
    return in_order(file_names_in(folder))


def file_names_in(folder: str) -> list[str]:
    """Return the names of the files in a folder that may be the first ones of conversations."""
    return _files_of_length(folder, NAME_LENGTH)


def in_order(file_names: Iterable[str]) -> list[ListedName]:
    """Return the first files of conversations with these names, sorted by the start of the conversation."""
    found = []
    for file_name in file_names:
        name = parse_rollout_name(file_name)
        if name is not None:
            id = name.conversation_id
            found.append((started_at(name.stamp, id), id, file_name))
    return [ListedName(*each) for each in sorted(found)]


def may_be_rollout(name: str) -> bool:
    return len(name) == NAME_LENGTH and name.startswith("rollout-") and name.endswith(".jsonl")


def may_be_segment(name: str) -> bool:
    return len(name) == SEGMENT_LENGTH and name.startswith("rollout-") and name.endswith(".jsonl")


def walk(
    home: Path,
    *,
    archived: bool = False,
    newest_first: bool = True,
    start: ListStart | None = None,
    names_in: NamesIn = names_in,
    segments_in: SegmentsIn = lambda folder: (),
) -> Iterator[tuple[ListedName, Path]]:
    """Yield the conversations in the order of their start, each with its newest file. `segments_in` returns the further
    files of conversations in a folder. A folder is read only when the walk reaches it; but further files are in later
    folders than their conversations, so a walk from the oldest one looks for them in all folders.
    """
    pending: list[tuple[ListedName, Path]] = []
    newest: _Newest = {} if newest_first else _newest(home, segments_in, archived=archived)
    for folder, following in _with_following(folders(home, archived=archived, newest_first=newest_first)):
        if newest_first:
            _note_segments(newest, segments_in(folder.path))
        if not _is_passed_by(folder, start, newest_first=newest_first):
            listed = [each for each in names_in(folder.path) if each.file_name.startswith(folder.day, 8)]
            if start is not None:
                listed = [each for each in listed if _is_behind(each, start, newest_first=newest_first)]
            if newest_first:
                listed.reverse()
            is_in_order, path = not pending, Path(folder.path)
            pending += [(each, path) for each in listed]
            if not is_in_order:
                pending.sort(reverse=newest_first)
        if not pending:
            continue
        settled = _settled(pending, following, newest_first=newest_first)
        for each, path in pending[:settled]:
            yield each, newest[each.id][1] if each.id in newest else path / each.file_name
        del pending[:settled]


_Newest = dict[str, tuple[str, Path]]
"""Newest files of the conversations that have several, with the ids of the files, by conversation id."""


def _newest(home: Path, segments_in: SegmentsIn, *, archived: bool) -> _Newest:
    found: _Newest = {}
    for folder in folders(home, archived=archived):
        _note_segments(found, segments_in(folder.path))
    return found


def _note_segments(found: _Newest, segments: Iterable[tuple[RolloutName, Path]]) -> None:
    for name, path in segments:
        found[name.conversation_id] = max(found.get(name.conversation_id, ("", path)), (name.segment, path))


def _with_following(
    found: Iterator[RolloutFolder],
) -> Iterator[tuple[RolloutFolder, RolloutFolder | None]]:
    """Yield each folder with the following one; None after the last one."""
    before = next(found, None)
    while before is not None:
        following = next(found, None)
        yield before, following
        before = following


def _is_behind(each: ListedName, start: ListStart, *, newest_first: bool) -> bool:
    """Return whether the conversation may be on a page that begins at `start`."""
    here, there = (each.started, each.id), (start.key.value, start.key.thread_id)
    return (
        here < there
        if newest_first and not start.included
        else (here <= there if newest_first else here >= there if start.included else here > there)
    )


def _is_passed_by(folder: RolloutFolder, start: ListStart | None, *, newest_first: bool) -> bool:
    """Return whether all conversations in the folder come before a page that begins at `start`."""
    if start is None or not folder.day:
        return False
    day = start.key.value[:10]
    return _shifted(folder.day, -DAYS_APART) > day if newest_first else _shifted(folder.day, DAYS_APART) < day


def _settled(
    pending: Sequence[tuple[ListedName, Path]], following: RolloutFolder | None, *, newest_first: bool
) -> int:
    """Return how many of the pending conversations come before everything in the folders that follow."""
    if following is None or not following.day:
        return len(pending)
    edge = _shifted(following.day, DAYS_APART if newest_first else -DAYS_APART)
    return bisect_left(
        pending, True, key=lambda each: each[0].started <= edge if newest_first else each[0].started >= edge
    )


@lru_cache(maxsize=4096)
def _shifted(day: str, days: int) -> str:
    """Return the day that is `days` later; the same text if it is not a day of the calendar."""
    try:
        return (date.fromisoformat(day) + timedelta(days=days)).isoformat()
    except (ValueError, OverflowError):
        return day


def find(home: Path, conversation_id: ConversationId, *, archived: bool = False) -> Path | None:
    """Return the newest file of a conversation, also if it is in the folder of another day; None if there is none."""
    found = find_all(home, conversation_id, archived=archived)
    return found[-1] if found else None


def find_all(home: Path, conversation_id: str, *, archived: bool = False) -> list[Path]:
    """Return all files of a conversation, the newest one last."""
    first = find_file(home, conversation_id, archived=archived)
    if first is None:
        return []
    known = parse_rollout_name(first.name)
    begun = "" if known is None else _shifted(known.stamp[:10], -DAYS_APART)
    segments = [
        (name.segment, path)
        for folder in folders(home, archived=archived)
        if not folder.day or folder.day >= begun
        for name, path in _segments(folder.path)
        if name.conversation_id == conversation_id.lower()
    ]
    return [first, *(path for _, path in sorted(segments))]


def find_file(home: Path, file_id: str, *, archived: bool = False) -> Path | None:
    """Return the rollout whose name ends with this id, which may be the first file of a conversation or a further one;
    None if there is none.
    """
    ends = (f"-{file_id.lower()}.jsonl", f"_{file_id.lower()}.jsonl")
    if archived:
        return _ending(str(home / ARCHIVED), ends)
    sessions = str(home / SESSIONS)
    likely = [f"{sessions}/{day:%Y/%m/%d}" for day in _days_of(file_id)]
    others = (folder.path for folder in folders(home) if folder.path not in likely)
    for folder in chain(likely, others, [sessions]):
        if (path := _ending(folder, ends)) is not None:
            return path
    return None


def find_elsewhere(home: Path, conversation_id: ConversationId) -> Path | None:
    """Return the rollout of a conversation that is stored in another home to which this home has a link; None if there
    is none.
    """
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


def _files_of_length(folder: str, length: int) -> list[str]:
    """Return the names of this length of the files in a folder. The loop does little work per file, since a folder may
    have very many.
    """
    try:
        with os.scandir(folder) as entries:
            return [
                each.name
                for each in entries
                if len(each.name) == length and each.is_file(follow_symlinks=False)
            ]
    except OSError:
        return []


def rollouts_in(folder: str) -> list[Path]:
    """Return all files in a folder that may be rollouts: the first files of conversations, and further ones."""
    names = _names(
        folder,
        lambda each: (
            (may_be_rollout(each.name) or may_be_segment(each.name)) and each.is_file(follow_symlinks=False)
        ),
    )
    return [Path(folder, name) for name in sorted(names)]


def _segments(folder: str) -> Iterator[tuple[RolloutName, Path]]:
    """Yield the further files of conversations in a folder."""
    for file_name in _files_of_length(folder, SEGMENT_LENGTH):
        name = parse_rollout_name(file_name)
        if name is not None and name.segment:
            yield name, Path(folder, file_name)


def _ending(folder: str, ends: tuple[str, str]) -> Path | None:
    names = _names(
        folder,
        lambda each: (
            each.name.lower().endswith(ends)
            and (may_be_rollout(each.name) or may_be_segment(each.name))
            and each.is_file(follow_symlinks=False)
        ),
    )
    for file_name in sorted(names, key=str.lower):
        name = parse_rollout_name(file_name)
        # The names of a conversation's further files contain its id, too.
        if name is not None and (name.segment or name.conversation_id) == ends[0][1 : -len(".jsonl")]:
            return Path(folder, file_name)
    return None


def _days_of(conversation_id: str) -> list[datetime]:
    """Return the days, in any time zone, on which an id was made; an empty list if the id does not say its time."""
    try:
        made = datetime.fromtimestamp(int(conversation_id.replace("-", "")[:12], 16) / 1000, UTC)
        return [made, made + timedelta(days=1), made - timedelta(days=1)]
    except (ValueError, OverflowError, OSError):
        return []


class _KeptNames(Struct, frozen=True):
    changed: int | None
    """Modification time of the folder; None if it is too recent to show every change."""
    file_names: list[str]
    listed: list[ListedName]


class FolderNames:
    """Cache of the file names in folders. The names in the last few folders are cached until the folder's modification
    time changes. A folder that has just changed is read at each use, but its names are parsed again only if they are
    others. The names of further files are cached for all folders.
    """

    MOST_KEPT = 16

    def __init__(self, now: Callable[[], float]) -> None:
        """Begin with an empty cache. `now` returns seconds since 1970."""
        self._now = now
        self._kept: dict[str, _KeptNames] = {}
        self._segments: dict[str, tuple[int, list[tuple[RolloutName, Path]]]] = {}

    def __call__(self, folder: str) -> list[ListedName]:
        changed = self._changed(folder)
        if changed is None:
            return []
        kept = self._kept.get(folder)
        if kept is not None and kept.changed == changed:
            return kept.listed
        now = int(self._now() * 1e9)
        names = file_names_in(folder)
        listed = kept.listed if kept is not None and kept.file_names == names else in_order(names)
        settled = changed if changed < now - SETTLED_NS else None
        self._kept[folder] = _KeptNames(settled, names, listed)
        while len(self._kept) > self.MOST_KEPT:
            self._kept.pop(next(iter(self._kept)), None)
        return listed

    def newest(self, home: Path, archived: bool) -> dict[str, Path]:
        """Return the newest files of the conversations that have several files, by conversation id."""
        return {id: path for id, (_, path) in _newest(home, self.segments_in, archived=archived).items()}

    def segments_in(self, folder: str) -> list[tuple[RolloutName, Path]]:
        """Return the further files of conversations in a folder."""
        changed = self._changed(folder)
        if changed is None:
            return []
        kept = self._segments.get(folder)
        if kept is not None and kept[0] == changed:
            return kept[1]
        now = int(self._now() * 1e9)
        segments = list(_segments(folder))
        if changed < now - SETTLED_NS:
            self._segments[folder] = (changed, segments)
        return segments

    def _changed(self, folder: str) -> int | None:
        try:
            return os.stat(folder, follow_symlinks=False).st_mtime_ns
        except OSError:
            return None
