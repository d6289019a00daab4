"""Moves rollouts to `archived_sessions`, out of the list, and back; deletes them.

A rollout is moved or deleted only while no server writes it. Nothing is ever replaced.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from app_server.core.errors import ArchiveRefused, ConversationError, describe
from app_server.core.rollout import rollout_names
from app_server.core.rollout.disk import lock_rollout, make_private_folders, open_for_reading, unlock_rollout
from protocol.ids import ConversationId


def archivable(home: Path, conversation_id: ConversationId, rollout: Path) -> Path:
    """Return the resolved path of the rollout, if it belongs to this conversation.

    Raises `ArchiveRefused` if it does not, and `ConversationError` if archiving is impossible.
    """
    try:
        sessions = (home / rollout_names.SESSIONS).resolve(strict=True)
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
    name = rollout_names.parse_rollout_name(real.name)
    if name is None or name.conversation_id != conversation_id.lower():
        raise ArchiveRefused(f"rollout path `{rollout}` does not match conversation id {conversation_id}")
    return real


def archive_rollout(home: Path, conversation_id: ConversationId, rollout: Path) -> Path:
    """Move a rollout to the archive; return the new path. Raises like `archivable`, and `RolloutBusy` while somebody
    writes it."""
    real = archivable(home, conversation_id, rollout)
    return _move(real, home / rollout_names.ARCHIVED / real.name, "archive")


def unarchive_rollout(home: Path, rollout: Path) -> Path:
    """Move an archived rollout to the folder of its day, as the one that was changed last; return the new path.

    Raises `ConversationError`, and `RolloutBusy` while somebody writes it.
    """
    name = rollout_names.parse_rollout_name(rollout.name)
    if name is None:
        raise ConversationError(
            f"failed to unarchive conversation: {rollout.name} is not the name of a rollout"
        )
    target = rollout_names.stored_path(home, name).with_name(rollout.name)
    moved = _move(rollout, target, "unarchive")
    os.utime(moved)
    return moved


def delete_rollout(rollout: Path) -> None:
    """Delete a rollout with its journal. Raises `ConversationError`, and `RolloutBusy` while somebody writes it."""
    with _exclusively(rollout, "delete"):
        rollout_names.journal_path(rollout).unlink(missing_ok=True)
        rollout.unlink()


def require_unused(rollout: Path) -> None:
    """Raise `RolloutBusy` while somebody writes it."""
    with _exclusively(rollout, "change"):
        pass


def _move(source: Path, target: Path, verb: str) -> Path:
    with _exclusively(source, verb):
        make_private_folders(target.parent)
        if os.path.lexists(target):
            raise ConversationError(f"failed to {verb} conversation: {target} exists already")
        os.rename(source, target)
        journal = rollout_names.journal_path(source)
        if os.path.isfile(journal):
            journal.rename(rollout_names.journal_path(target))
    return target


@contextmanager
def _exclusively(rollout: Path, verb: str) -> Iterator[None]:
    """Hold the lock of the rollout's writer. An `OSError` becomes a `ConversationError`."""
    try:
        with ExitStack() as held:
            fd = open_for_reading(rollout)
            held.callback(os.close, fd)
            held.callback(unlock_rollout, fd, lock_rollout(fd, rollout))
            yield
    except OSError as error:
        raise ConversationError(f"failed to {verb} conversation: {describe(error)}") from None
