"""What is shown of a conversation beside its turns, as its file has it: where it came from, what it is about, when it
was used last, and with which model.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

from app_server.core.errors import RolloutNotFound
from app_server.core.rollout.disk import describe, open_for_reading
from app_server.core.rollout.head import Revision, read_summary
from app_server.core.rollout.listing import find_rollout
from app_server.core.rollout.objects import parse_object, parse_record
from app_server.core.rollout.rollout_errors import RolloutUnreadable
from app_server.core.rollout.rollout_names import ARCHIVED, parse_rollout_name
from app_server.core.rollout.stored_lines import cut_line
from protocol.base import Json
from protocol.ids import ConversationId
from protocol.origins import SessionOrigin
from protocol.records import dataclass

TAIL_BYTES = 256 * 1024
"""So much of a file's end is searched for the settings of its last turn: a request to the model stores them anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadOrigin:
    """Who began the conversation, where and with what."""

    cwd: str
    cli_version: str
    originator: str
    source: SessionOrigin | dict[str, Json]
    """Of a sub-agent's conversation the object that the protocol has for it."""
    git_info: Revision | None = None
    forked_from: str | None = None


@dataclass(frozen=True, slots=True)
class ModelInUse:
    """Of the last turn."""

    provider: str
    name: str | None = None
    effort: str | None = None


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


def read_thread_summary(
    path: Path, default_provider: str, name_of: Callable[[str], str | None]
) -> ThreadSummary:
    """`name_of` knows the names that users gave, by id. Raises `RolloutUnreadable`; its text says nothing that the file
    says.
    """
    head = read_summary(path, default_provider)
    try:
        fd = open_for_reading(path)
        try:
            updated_at = int(os.fstat(fd).st_mtime)
            model, effort = _last_model(fd)
        finally:
            os.close(fd)
    except OSError as error:
        raise RolloutUnreadable(f"{path}: {describe(error)}") from None
    return ThreadSummary(
        id=head.conversation_id,
        path=path,
        preview=head.preview,
        created_at=_seconds(head.timestamp, updated_at),
        updated_at=updated_at,
        origin=ThreadOrigin(
            cwd=head.cwd,
            cli_version=head.cli_version,
            originator=head.originator,
            source=head.source,
            git_info=head.git_info,
            forked_from=head.forked_from,
        ),
        model=ModelInUse(head.model_provider, model, effort),
        name=name_of(head.conversation_id),
    )


def find_thread(home: Path, conversation_id: ConversationId) -> Path:
    """Where that conversation is stored, in the archive too. Raises `RolloutNotFound`."""
    try:
        return find_rollout(home, conversation_id)
    except RolloutNotFound:
        folder = home / ARCHIVED
        for path in _rollouts(folder):
            name = parse_rollout_name(path.name)
            if name is not None and name.conversation_id == conversation_id.lower():
                return path
        raise


def _rollouts(folder: Path) -> Iterator[Path]:
    try:
        with os.scandir(folder) as entries:
            yield from (folder / entry.name for entry in entries if entry.is_file(follow_symlinks=False))
    except OSError:
        return


def _last_model(fd: int) -> tuple[str | None, str | None]:
    """Model and effort of the last turn, where the end of the file still says them."""
    start = max(0, os.fstat(fd).st_size - TAIL_BYTES)
    for line in reversed(os.pread(fd, TAIL_BYTES, start).split(b"\n")):
        settings = _settings(line)
        if settings is not None:
            model, effort = settings.get("model"), settings.get("effort")
            return model if isinstance(model, str) else None, effort if isinstance(effort, str) else None
    return None, None


def _settings(line: bytes) -> dict[str, Json] | None:
    if b'"turn_context"' not in line:
        return None
    kind, payload, _ = cut_line(line)
    if kind:
        return parse_object(payload) if kind == b"turn_context" else None
    match parse_record(line):
        case {"type": "turn_context", "payload": dict() as found}:
            return found
        case _:
            return None


def _seconds(timestamp: str | None, default: int) -> int:
    try:
        return int(datetime.fromisoformat((timestamp or "").replace("Z", "+00:00")).timestamp())
    except (ValueError, OverflowError):
        return default
