"""Summarises a conversation from the head of its rollout, without reading the rest."""

from __future__ import annotations

import os
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from app_server.core.git.repository import Revision
from app_server.core.rollout.disk import RolloutUnreadable, opened
from app_server.core.rollout.lines import raw_lines
from app_server.core.rollout.record import read_record
from app_server.core.rollout.rollout_names import conversation_of
from protocol.ids import ConversationId, SessionOrigin
from protocol.records import dataclass

if TYPE_CHECKING:
    from protocol.base import Json

MAX_HEAD_BYTES = 8 * 1024 * 1024
"""Instructions and a first message with images may be long; a summary reads at most this much."""
MAX_HEAD_LINES = 64
IMAGE = "[Image]"
"""The preview where the user began with images only, as in codex 0.169."""

_REQUEST = "## My request for Codex:"
"""Some clients prepend context to a message; the user's own text follows this heading."""


@dataclass(frozen=True, slots=True)
class StoredSummary:
    """One entry of a list of conversations."""

    conversation_id: ConversationId
    path: Path
    preview: str
    timestamp: str | None
    model_provider: str
    cwd: str
    cli_version: str
    source: SessionOrigin | dict[str, Json]
    """For a sub-agent's conversation, the object of the protocol."""
    git_info: Revision | None
    has_user_message: bool
    """Whether it contains a message of the user."""
    originator: str
    """The client that began it."""
    forked_from: str | None
    """The conversation that it is a copy of."""


def read_summary(path: Path, default_provider: str) -> StoredSummary:
    """Raises `RolloutUnreadable`, whose text contains nothing of the file."""
    with opened(path) as fd:
        return summarise(path, fd, default_provider)


def summarise(path: Path, fd: int, default_provider: str) -> StoredSummary:
    """Read the summary from an open rollout. Raises `RolloutUnreadable` and `OSError`."""
    # No validators: a list is often the first request, and building them takes longer than the page.
    meta: dict[str, Json] | None = None
    preview: str | None = None
    end = min(os.fstat(fd).st_size, MAX_HEAD_BYTES)
    for raw in islice(raw_lines(fd, end=end), MAX_HEAD_LINES):
        record = read_record(raw.data)
        if record is None:
            continue
        if meta is None and record.kind == "session_meta":
            found = record.value()
            meta = found if found is not None and is_session_meta(found) else None
        elif preview is None and record.kind == "event_msg" and record.name == "user_message":
            event = record.value() or {}
            text = _text(event, "message")
            preview = None if text is None else _preview(text, event.get("images"))
        if meta and preview is not None:
            break
    if meta is None:
        raise RolloutUnreadable(f"{path} is not a rollout: it has no session metadata")
    return StoredSummary(
        conversation_id=conversation_of(path.name, meta["id"]),
        path=path,
        preview=preview or "",
        timestamp=meta["timestamp"],
        model_provider=_text(meta, "model_provider") or default_provider,
        cwd=meta["cwd"],
        cli_version=meta["cli_version"],
        source=_source(meta.get("source")),
        git_info=_revision(meta.get("git")),
        has_user_message=preview is not None,
        originator=meta["originator"],
        forked_from=_text(meta, "forked_from_id"),
    )


def is_session_meta(found: Mapping[str, Json]) -> bool:
    """Whether the payload has what no conversation is without."""
    return all(
        isinstance(found.get(key), str) for key in ("id", "timestamp", "cwd", "originator", "cli_version")
    )


def _text(found: Mapping[str, Json], key: str) -> str | None:
    value = found.get(key)
    return value if isinstance(value, str) else None


def _source(raw: Json) -> SessionOrigin | dict[str, Json]:
    match raw:
        case None:
            return SessionOrigin.VSCODE
        case str():
            return SessionOrigin(raw)
        case {"subagent": "review" | "compact" as kind}:
            return {"subagent": kind}
        case {"subagent": {"other": str(name)}}:
            return {"subagent": {"other": name}}
        case _:
            return SessionOrigin.UNKNOWN


def _revision(raw: Json) -> Revision | None:
    if not isinstance(raw, dict):
        return None
    commit, branch, url = (_text(raw, key) for key in ("commit_hash", "branch", "repository_url"))
    return Revision(commit_hash=commit, branch=branch, repository_url=url)


def _preview(text: str, images: Json) -> str:
    return request_in(text) if text.strip() or not images else IMAGE


def request_in(text: str) -> str:
    _, mark, request = text.partition(_REQUEST)
    return request.strip() if mark else text
