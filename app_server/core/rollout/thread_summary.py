"""What is shown of a conversation beside its turns, as its file has it: where it came from, what it is about, when it
was used last, and with which model.
"""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from app_server.core.errors import RolloutNotFound
from app_server.core.git.repository import Revision
from app_server.core.rollout.disk import opened
from app_server.core.rollout.head import StoredSummary, summarise
from app_server.core.rollout.last_state import turn_contexts
from app_server.core.rollout.listing import find, find_rollout
from app_server.core.rollout.thread_notes import NotedNow, ThreadNotes
from protocol.ids import ConversationId, SessionOrigin
from protocol.records import dataclass

if TYPE_CHECKING:
    from protocol.base import Json

TAIL_BYTES = 256 * 1024
"""So much of a file's end is searched for the settings of its last turn: a request to the model stores them anew."""


_MOST = 2**63 - 1


class ThreadOrigin(Struct, frozen=True, kw_only=True):
    """Who began the conversation, where and with what."""

    cwd: str
    cli_version: str
    originator: str
    source: SessionOrigin | dict[str, Json]
    """Of a sub-agent's conversation the object that the protocol has for it."""
    git_info: Revision | None = None
    forked_from: str | None = None


class ModelInUse(Struct, frozen=True):
    """Of the last turn."""

    provider: str
    name: str | None = None
    effort: str | None = None


def state_values(status: os.stat_result) -> tuple[int, int, int, int]:
    """What a `FileState` has."""
    changed, moved = status.st_mtime_ns, status.st_ctime_ns
    return (
        status.st_ino & _MOST,
        status.st_size,
        changed if changed < _MOST else _MOST,
        moved if moved < _MOST else _MOST,
    )


class FileState(Struct, frozen=True):
    """By which a change of a file is seen; in numbers of 64 bits with a sign."""

    inode: int
    size: int
    changed_ns: int
    """Its modification time."""
    moved_ns: int
    """Its status change time, which nobody can set."""

    @classmethod
    def of(cls, status: os.stat_result) -> FileState:
        return cls(*state_values(status))

    @property
    def values(self) -> tuple[int, int, int, int]:
        return (self.inode, self.size, self.changed_ns, self.moved_ns)


@dataclass(frozen=True, slots=True)
class StoredThread:
    """What the file of a conversation says of it. A head without a provider has an empty one."""

    head: StoredSummary
    model: str | None
    effort: str | None
    state: FileState


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadSummary:
    """Times are in whole seconds since 1970."""

    id: str
    path: Path | None
    """Where it is stored, or will be; None: nowhere."""
    preview: str
    created_at: int
    updated_at: int
    origin: ThreadOrigin
    model: ModelInUse
    name: str | None = None
    ephemeral: bool = False


def read_thread_summary(path: Path, default_provider: str, notes: ThreadNotes) -> ThreadSummary:
    """Raises `RolloutUnreadable`; its text says nothing that the file says."""
    return thread_summary(read_stored_thread(path), default_provider, notes.read())


def read_stored_thread(path: Path) -> StoredThread:
    """Raises `RolloutUnreadable`; its text says nothing that the file says."""
    with opened(path) as fd:
        head, settings = summarise(path, fd, ""), next(turn_contexts(fd, TAIL_BYTES), {})
        model, effort = settings.get("model"), settings.get("further_effort") or settings.get("effort")
        return StoredThread(
            head,
            model if isinstance(model, str) else None,
            effort if isinstance(effort, str) else None,
            FileState.of(os.fstat(fd)),
        )


def thread_summary(stored: StoredThread, default_provider: str, noted: NotedNow) -> ThreadSummary:
    """What the file says, with what users said beside it."""
    head, updated_at = stored.head, stored.state.changed_ns // 1_000_000_000
    id = head.conversation_id
    return ThreadSummary(
        id=id,
        path=head.path,
        preview=head.preview,
        created_at=_seconds(head.timestamp, updated_at),
        updated_at=updated_at,
        origin=ThreadOrigin(
            cwd=head.cwd,
            cli_version=head.cli_version,
            originator=head.originator,
            source=head.source,
            git_info=noted.revision(id) or head.git_info,
            forked_from=head.forked_from,
        ),
        model=ModelInUse(head.model_provider or default_provider, stored.model, stored.effort),
        name=noted.name(id),
    )


def find_thread(home: Path, conversation_id: ConversationId) -> Path:
    """Where that conversation is stored, in the archive too. Raises `RolloutNotFound`."""
    try:
        return find_rollout(home, conversation_id)
    except RolloutNotFound:
        path = find_archived(home, conversation_id)
        if path is None:
            raise
        return path


def find_archived(home: Path, conversation_id: ConversationId) -> Path | None:
    """Where that conversation is stored in the archive."""
    return find(home, conversation_id, archived=True)


def _seconds(timestamp: str | None, default: int) -> int:
    try:
        return int(datetime.fromisoformat((timestamp or "").replace("Z", "+00:00")).timestamp())
    except (ValueError, OverflowError):
        return default
