"""Finds stored conversations: pages of summaries, newest first, and one by id.

A page reads the names in the folders it passes and the heads of the files it returns. Only regular files in numbered
folders count; links are not followed. A cursor is the name of the last entry, so it stays valid when new conversations
appear.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from app_server.core.errors import RolloutNotFound
from app_server.core.rollout.head import StoredSummary, read_summary
from app_server.core.rollout.rollout_errors import RolloutUnreadable
from app_server.core.rollout.rollout_names import SESSIONS, RolloutName, parse_key, parse_rollout_name
from protocol.ids import ConversationId
from protocol.origins import SessionOrigin
from protocol.records import dataclass

DEFAULT_PAGE_SIZE = 25
MAX_PAGE_SIZE = 100
LISTED_ORIGINS = frozenset({SessionOrigin.CLI, SessionOrigin.VSCODE})
"""Interactive conversations; those of scripts and sub-agents are available by path or id only."""

_YEAR, _TWO = re.compile(r"\d{4}"), re.compile(r"\d{2}")


@dataclass(frozen=True, slots=True)
class ConversationPage:
    items: tuple[StoredSummary, ...]
    next_cursor: str | None


def list_conversations(
    home: Path,
    *,
    default_provider: str,
    providers: frozenset[str] | None = None,
    page_size: int | None = None,
    cursor: str | None = None,
) -> ConversationPage:
    """A page of conversations of these providers (None: all). An invalid cursor starts at the newest.

    `default_provider` is the provider of conversations that name none.
    """
    size = min(max(page_size if page_size is not None else DEFAULT_PAGE_SIZE, 1), MAX_PAGE_SIZE)
    items: list[StoredSummary] = []
    last: RolloutName | None = None
    for name, path in _newest_first(home / SESSIONS, parse_key(cursor) if cursor else None):
        try:
            summary = read_summary(path, default_provider)
        except RolloutUnreadable:
            continue
        wanted = providers is None or summary.model_provider in providers
        listed = isinstance(summary.source, SessionOrigin) and summary.source in LISTED_ORIGINS
        if not (wanted and summary.has_user_message and listed):
            continue
        if last is not None and len(items) == size:
            return ConversationPage(tuple(items), last.key)
        items.append(summary)
        last = name
    return ConversationPage(tuple(items), None)


def _newest_first(sessions: Path, after: RolloutName | None) -> Iterator[tuple[RolloutName, Path]]:
    """The rollouts after `after`. A name counts only in the folder of its day, so that names determine the order."""
    until = after.stamp[:10] if after else "9999-99-99"
    for year in _folders(sessions, _YEAR):
        if year > until[:4]:
            continue
        for month in _folders(sessions / year, _TWO):
            if f"{year}-{month}" > until[:7]:
                continue
            for day in _folders(sessions / year / month, _TWO):
                date = f"{year}-{month}-{day}"
                if date > until:
                    continue
                folder = sessions / year / month / day
                names = (name for name in _rollouts(folder) if after is None or name < after)
                for name in sorted(names, reverse=True):
                    if name.stamp.startswith(date):
                        yield name, folder / name.file_name


def _folders(folder: Path, pattern: re.Pattern[str]) -> list[str]:
    """The matching folder names in a folder, highest first."""
    try:
        with os.scandir(folder) as entries:
            found = [e.name for e in entries if pattern.fullmatch(e.name) and e.is_dir(follow_symlinks=False)]
    except OSError:
        return []
    return sorted(found, reverse=True)


def _rollouts(folder: Path) -> list[RolloutName]:
    try:
        with os.scandir(folder) as entries:
            return [
                name
                for entry in entries
                if (name := parse_rollout_name(entry.name)) and entry.is_file(follow_symlinks=False)
            ]
    except OSError:
        return []


def find_rollout(home: Path, conversation_id: ConversationId) -> Path:
    """The path of a stored conversation. Raises `RolloutNotFound`."""
    sessions = home / SESSIONS
    folders = [sessions]
    for year in _folders(sessions, _YEAR):
        for month in _folders(sessions / year, _TWO):
            folders += [sessions / year / month / day for day in _folders(sessions / year / month, _TWO)]
    for folder in folders:
        for name in _rollouts(folder):
            if name.conversation_id == conversation_id.lower():
                return folder / name.file_name
    raise RolloutNotFound(f"no rollout found for conversation id {conversation_id}")
