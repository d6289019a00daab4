"""Pages of stored threads, in either direction, by the time of their start or of their last change, with filters.

A page reads the names in all folders and, beside what it returns, the heads of files that a filter leaves out. A cursor
is the sort value and the id of the last entry, so it stays valid when threads appear or go.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import field
from pathlib import Path

from app_server.core.rollout.head import StoredSummary, read_summary
from app_server.core.rollout.listing import DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE
from app_server.core.rollout.rollout_errors import RolloutUnreadable
from app_server.core.rollout.rollout_names import ARCHIVED, SESSIONS, parse_rollout_name
from app_server.core.rollout.thread_summary import ThreadSummary, read_thread_summary
from protocol.records import dataclass

_CURSOR = re.compile(r"(\d{4}-\d{2}-\d{2}T\d{2}-\d{2}-\d{2}|\d{20})\|([0-9a-f-]{36})")


class InvalidListCursor(ValueError):
    """The cursor is none of this list."""


@dataclass(frozen=True, slots=True, order=True)
class ListKey:
    """Where an entry stands: entries sort by the value, then by the id."""

    value: str
    """The start as in the file's name, or the last change in nanoseconds, with leading zeros."""
    thread_id: str

    def cursor(self) -> str:
        return f"{self.value}|{self.thread_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadFilter:
    wanted: Callable[[StoredSummary], bool]
    excluded: frozenset[str] = frozenset()
    search: str | None = None
    """Text that the preview or the name contains, in whatever case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListRequest:
    filter: ThreadFilter
    archived: bool = False
    by_change: bool = False
    newest_first: bool = True
    limit: int | None = None
    cursor: str | None = None


@dataclass(frozen=True, slots=True)
class ThreadPage:
    threads: tuple[ThreadSummary, ...] = ()
    next_cursor: str | None = None
    backwards_cursor: str | None = None


@dataclass(slots=True)
class _Page:
    rows: list[tuple[ListKey, ThreadSummary]] = field(default_factory=list)
    more: bool = False


def list_threads(
    home: Path, request: ListRequest, default_provider: str, name_of: Callable[[str], str | None]
) -> ThreadPage:
    """Blocks. Raises InvalidListCursor. Files that cannot be read are left out."""
    after = _parse(request.cursor, by_change=request.by_change)
    entries = sorted(_entries(home, request), reverse=request.newest_first)
    limit = min(max(DEFAULT_PAGE_SIZE if request.limit is None else request.limit, 1), MAX_PAGE_SIZE)
    page = _Page()
    for key, path in entries:
        if after is not None and (key >= after if request.newest_first else key <= after):
            continue
        summary = _summary(key, path, request.filter, default_provider, name_of)
        if summary is None:
            continue
        if len(page.rows) == limit:
            page.more = True
            break
        page.rows.append((key, summary))
    if not page.rows:
        return ThreadPage()
    first, last = page.rows[0][0], page.rows[-1][0]
    return ThreadPage(
        tuple(summary for _, summary in page.rows), last.cursor() if page.more else None, first.cursor()
    )


def _parse(cursor: str | None, *, by_change: bool) -> ListKey | None:
    if cursor is None:
        return None
    match = _CURSOR.fullmatch(cursor)
    if match is None or match[1].isdigit() is not by_change:
        raise InvalidListCursor(f"invalid cursor: {cursor[:100]}")
    return ListKey(match[1], match[2])


def _entries(home: Path, request: ListRequest) -> Iterator[tuple[ListKey, Path]]:
    for path in _rollouts(home / ARCHIVED, 0) if request.archived else _rollouts(home / SESSIONS, 3):
        name = parse_rollout_name(path.name)
        if name is None or name.conversation_id in request.filter.excluded:
            continue
        value = name.stamp
        if request.by_change:
            try:
                value = f"{os.stat(path, follow_symlinks=False).st_mtime_ns:020}"
            except OSError:
                continue
        yield ListKey(value, name.conversation_id), path


def _rollouts(folder: Path, depth: int) -> Iterator[Path]:
    """Regular files `depth` folders below; links are not followed."""
    try:
        with os.scandir(folder) as entries:
            found = list(entries)
    except OSError:
        return
    for entry in found:
        if depth and entry.name.isdigit() and entry.is_dir(follow_symlinks=False):
            yield from _rollouts(folder / entry.name, depth - 1)
        elif not depth and entry.is_file(follow_symlinks=False):
            yield folder / entry.name


def _summary(
    key: ListKey,
    path: Path,
    wanted: ThreadFilter,
    default_provider: str,
    name_of: Callable[[str], str | None],
) -> ThreadSummary | None:
    try:
        head = read_summary(path, default_provider)
        if not (head.has_user_message and wanted.wanted(head)):
            return None
        if wanted.search is not None:
            shown = f"{head.preview}\n{name_of(key.thread_id) or ''}".casefold()
            if wanted.search.casefold() not in shown:
                return None
        return read_thread_summary(path, default_provider, name_of)
    except RolloutUnreadable:
        return None
