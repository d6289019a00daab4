"""Archives a conversation: moves its rollout to `archived_sessions`, out of the list."""

from __future__ import annotations

import os
from pathlib import Path

from app_server.core.errors import ConversationError
from app_server.core.rollout.disk import describe, make_private_folders
from app_server.core.rollout.rollout_errors import ArchiveRefused
from app_server.core.rollout.rollout_names import ARCHIVED, SESSIONS, journal_path, parse_rollout_name
from protocol.ids import ConversationId


def archivable(home: Path, conversation_id: ConversationId, rollout: Path) -> Path:
    """The resolved path of the rollout, if it belongs to this conversation.

    Raises `ArchiveRefused` if it does not, and `ConversationError` if archiving is impossible.
    """
    try:
        sessions = (home / SESSIONS).resolve(strict=True)
    except OSError as error:
        raise ConversationError(
            f"failed to archive conversation: no sessions directory: {describe(error)}"
        ) from None
    try:
        real = (home / rollout).resolve(strict=True)
        inside = real.is_relative_to(sessions) and real.is_file()
    except (OSError, ValueError, RuntimeError):
        inside = False
    if not inside:
        raise ArchiveRefused(f"rollout path `{rollout}` must be in sessions directory")
    name = parse_rollout_name(real.name)
    if name is None or name.conversation_id != conversation_id.lower():
        raise ArchiveRefused(f"rollout path `{rollout}` does not match conversation id {conversation_id}")
    return real


def archive_rollout(home: Path, conversation_id: ConversationId, rollout: Path) -> Path:
    """Returns the new path. The rollout's writer must be closed. Raises like `archivable`."""
    real = archivable(home, conversation_id, rollout)
    target = home / ARCHIVED / real.name
    try:
        make_private_folders(target.parent)
        os.rename(real, target)
    except OSError as error:
        raise ConversationError(f"failed to archive conversation: {describe(error)}") from None
    journal = journal_path(real)
    if journal.is_file():
        journal.rename(journal_path(target))
    return target
