"""Finds stored conversations: pages of summaries, newest first, and one by id.

A page reads the names in the folders it passes and the heads of the files it returns. A cursor is the name of the last
entry, so it stays valid when new conversations appear.
"""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from app_server.core.errors import RolloutNotFound
from app_server.core.rollout.head import StoredSummary, read_summary
from app_server.core.rollout.rollout_errors import RolloutUnreadable
from app_server.core.rollout.rollout_files import Bound, find, walk
from app_server.core.rollout.rollout_names import RolloutName, parse_key
from protocol.ids import ConversationId, SessionOrigin

DEFAULT_PAGE_SIZE = 25
MAX_PAGE_SIZE = 100
LISTED_ORIGINS = frozenset({SessionOrigin.CLI, SessionOrigin.VSCODE})
"""Interactive conversations; those of scripts and sub-agents are available by path or id only."""


class ConversationPage(Struct, frozen=True):
    items: tuple[StoredSummary, ...]
    next_cursor: str | None


def page_limit(wanted: int | None) -> int:
    return min(max(wanted if wanted is not None else DEFAULT_PAGE_SIZE, 1), MAX_PAGE_SIZE)


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
    size = page_limit(page_size)
    items: list[StoredSummary] = []
    last: RolloutName | None = None
    after = parse_key(cursor) if cursor else None
    for name, path in walk(home, start=Bound(after) if after else None):
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


def find_rollout(home: Path, conversation_id: ConversationId) -> Path:
    """The path of a stored conversation. Raises `RolloutNotFound`."""
    path = find(home, conversation_id)
    if path is None:
        raise RolloutNotFound(f"no rollout found for conversation id {conversation_id}")
    return path
