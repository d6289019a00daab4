"""What is shown of a stored conversation beside its turns: where it came from and what it is about, from the head of
its file; with which model it was used last, from its end; what users said beside it; and what was said in it, as one
text for a search. Output of commands, tool calls and reasoning are not searched, nor are turns that were taken back.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import asdict

from app_server.core.errors import RolloutUnreadable
from app_server.core.rollout.disk import opened
from app_server.core.rollout.lines import counting_lines, raw_lines, turn_contexts
from app_server.core.rollout.pages import StoredHead, ThreadSummary
from app_server.core.rollout.record import read_record, text_of
from app_server.core.rollout.rollout_names import conversation_of
from app_server.core.rollout.thread_notes import NOTED_GIT, NotedNow
from protocol.ids import SessionOrigin
from protocol.rollout import GitInfo
from protocol.structs import Json

MAX_HEAD_BYTES = 8 * 1024 * 1024
"""Instructions and a first message with images may be long; a summary reads at most this much."""
MAX_HEAD_LINES = 64
TAIL_BYTES = 256 * 1024
"""So much of a file's end is searched for the settings of its last turn: a request to the model stores them anew."""
IMAGE = "[Image]"
"""The preview where the user began with images only, as in codex 0.169."""

_REQUEST = "## My request for Codex:"
"""Some clients prepend context to a message; the user's own text follows this heading."""
_MOST = 2**63 - 1


class FileState(NamedTuple):
    """By which a change of a file is seen; in numbers of 64 bits with a sign."""

    inode: int
    size: int
    changed_ns: int
    """Its modification time."""
    moved_ns: int
    """Its status change time, which nobody can set."""

    @classmethod
    def of(cls, status: os.stat_result) -> FileState:
        changed, moved = min(status.st_mtime_ns, _MOST), min(status.st_ctime_ns, _MOST)
        return cls(status.st_ino & _MOST, status.st_size, changed, moved)


class StoredThread(Struct, frozen=True):
    head: StoredHead
    path: Path
    state: FileState
    has_user_message: bool = True
    """Whether it contains a message of the user."""


def read_stored_thread(path: Path) -> StoredThread:
    """Read the head and the end of a file. Raises `RolloutUnreadable`; its text says nothing that the file says."""
    # No validators: a list is often the first request, and building them takes longer than the page.
    with opened(path) as fd:
        status = os.fstat(fd)
        meta: dict[str, Json] | None = None
        preview: str | None = None
        end = min(status.st_size, MAX_HEAD_BYTES)
        for raw in islice(raw_lines(fd, end=end), MAX_HEAD_LINES):
            record = read_record(raw.data)
            if record is None:
                continue
            if meta is None and record.kind == "session_meta":
                found = record.value()
                meta = found if found is not None and is_session_meta(found) else None
            elif preview is None and record.kind == "event_msg" and record.name == "user_message":
                event = record.value() or {}
                text = text_of(event, "message")
                if text is not None:
                    preview = request_in(text) if text.strip() or not event.get("images") else IMAGE
            if meta and preview is not None:
                break
        if meta is None:
            raise RolloutUnreadable(f"{path} is not a rollout: it has no session metadata")
        settings, git = next(turn_contexts(fd, TAIL_BYTES), {}), meta.get("git")
        head = StoredHead(
            id=conversation_of(path.name, meta["id"]),
            preview=preview or "",
            timestamp=meta["timestamp"],
            provider=text_of(meta, "model_provider") or "",
            cwd=meta["cwd"],
            cli_version=meta["cli_version"],
            source=_source(meta.get("source")),
            git=GitInfo(**{name: text_of(git, name) for name in NOTED_GIT})
            if isinstance(git, dict)
            else None,
            originator=meta["originator"],
            forked_from=text_of(meta, "forked_from_id"),
            model=text_of(settings, "model"),
            effort=text_of(settings, "further_effort") or text_of(settings, "effort"),
        )
        return StoredThread(head, path, FileState.of(status), preview is not None)


def summarise(stored: StoredThread, default_provider: str, noted: NotedNow) -> ThreadSummary:
    """Summarise what the file says, with what users said beside it."""
    head, updated_at = stored.head, stored.state.changed_ns // 1_000_000_000
    noted_beside = {
        "provider": head.provider or default_provider,
        "git": noted.revision(head.id) or head.git,
        "name": noted.name(head.id),
    }
    return ThreadSummary(
        **{**asdict(head), **noted_beside},
        path=stored.path,
        created_at=_seconds(head.timestamp or "", updated_at),
        updated_at=updated_at,
    )


def is_session_meta(found: Mapping[str, Json]) -> bool:
    """Tell whether the payload has what no conversation is without."""
    return all(
        isinstance(found.get(key), str) for key in ("id", "timestamp", "cwd", "originator", "cli_version")
    )


def request_in(text: str) -> str:
    """Return the user's own part of a message."""
    _, mark, request = text.partition(_REQUEST)
    return request.strip() if mark else text


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


def _seconds(timestamp: str, default: int) -> int:
    try:
        return int(datetime.fromisoformat(timestamp.replace("Z", "+00:00")).timestamp())
    except (ValueError, OverflowError):
        return default


SEARCHED_CHARACTERS: Final = 256 * 1024
"""Of one conversation; what was said later is not found."""
BEFORE, AFTER = 48, 96
"""Characters of a snippet around a match."""
_MESSAGE: Final = b'_message"'


def read_message_text(path: Path) -> str:
    """Read the messages in their order, a line end between two. Raises `RolloutUnreadable`."""
    texts, length = list[str](), 0
    with opened(path, whole=True) as fd:
        for raw in counting_lines(fd):
            if _MESSAGE not in raw.data or (record := read_record(raw.data)) is None:
                continue
            match record.name if record.kind == "event_msg" else None, record.value():
                case "user_message", {"message": str(words)}:
                    texts.append(request_in(words))
                case "agent_message", {"message": str(words)}:
                    texts.append(words)
                case _:
                    continue
            length += len(texts[-1]) + 1
            if length >= SEARCHED_CHARACTERS:
                break
    return "\n".join(texts)[:SEARCHED_CHARACTERS]


def snippet(text: str, term: str) -> str | None:
    """Return the words around the first place where `text` has `term`, in whatever case; None where it is nowhere."""
    wanted = term.casefold()
    folded = text.casefold()
    at = folded.find(wanted)
    if at < 0:
        return None
    begin, end = at, at + len(wanted)
    if len(folded) != len(text):
        begin, end = _place(text, begin), _place(text, end)
    first, last = max(0, begin - BEFORE), min(len(text), end + AFTER)
    words = " ".join(text[first:last].split())
    return f"{'…' if first > 0 else ''}{words}{'…' if last < len(text) else ''}"


def _place(text: str, folded_place: int) -> int:
    """Return where a place in `text.casefold()` is in `text`: some characters fold to several."""
    folded = 0
    for place, character in enumerate(text):
        if folded >= folded_place:
            return place
        folded += len(character.casefold())
    return len(text)
