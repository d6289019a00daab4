"""Moves a conversation's rollout out of the list, into `archived_sessions`."""

from __future__ import annotations

import os
from pathlib import Path

from app_server.core.errors import ConversationError
from app_server.core.rollout.disk import describe, make_private_folders
from app_server.core.rollout.errors import ArchiveRefused
from app_server.core.rollout.names import ARCHIVED, SESSIONS, journal_path, parse_rollout_name
from protocol.ids import ConversationId


def archivable(home: Path, conversation_id: ConversationId, rollout: Path) -> Path:
    """The file itself, if it is this conversation's.

    Raises `ArchiveRefused` for a path that is not, `ConversationError` where nothing can be archived.
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
    """Returns where it lies now. Its writer must have been closed. Raises as `archivable` does."""
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
