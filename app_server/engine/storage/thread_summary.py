"""Summaries of stored conversations, and the text of their messages for a search.

A summary comes from three sources: the head of the file (source, preview), the end of the file (the model that was used
last), and notes that users set separately. The search text has the messages. It has no output of commands, tool calls
or reasoning, and no reverted turns.

The notes are names, in `session_index.jsonl`, and another state of the repository, in `thread_metadata.jsonl`. The
names are in the form of codex 0.169, which reads and writes the same file. In both files, the last line about a
conversation counts. Lines are appended under a lock of the home; only `forget` replaces a file, by one without the
lines about a conversation. What was read is cached; the file's status shows whether the file has grown, was replaced or
is gone.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import asdict

from app_server.engine.storage import disk
from app_server.engine.storage.decode import message_in
from app_server.engine.storage.disk import opened
from app_server.engine.storage.line_reader import raw_lines, turn_contexts
from app_server.engine.storage.pagination import StoredHead, ThreadSummary
from app_server.engine.storage.record import parse_object, read_record, text_of
from app_server.engine.storage.reverts import counting_lines
from app_server.engine.storage.rollout_names import conversation_of
from app_server.engine.storage.segments import head_lines, opened_whole
from app_server.engine.support.engine_errors import RolloutUnreadable
from app_server_protocol.encoding import Json
from app_server_protocol.engine.items import UserMessage
from app_server_protocol.event_items import TextInput
from app_server_protocol.ids import SessionOrigin
from app_server_protocol.rollout import GitInfo

MAX_HEAD_BYTES = 8 * 1024 * 1024
"""Maximum size of a head that a summary reads, in bytes: instructions and a first message with images may be long."""
MAX_HEAD_LINES = 64
TAIL_BYTES = 256 * 1024
"""Number of bytes at the end of a file that are searched for the settings of its last turn: each request to the model
stores them again.
"""
IMAGE = "[Image]"
"""Preview of a conversation whose first user message has only images, as in codex 0.169."""

_REQUEST = "## My request for Codex:"
"""Heading before the user's own text: some clients prepend context to a message."""
_MOST = 2**63 - 1


class FileState(Struct, frozen=True, gc=False):
    """State of a file by which a change is detected. Each number fits into 64 bits with a sign."""

    inode: int
    size: int
    changed_ns: int
    """Modification time, in nanoseconds since 1970."""
    moved_ns: int
    """Status change time, in nanoseconds since 1970. No program can set it."""

    @classmethod
    def of(cls, status: os.stat_result) -> FileState:
        changed, moved = min(status.st_mtime_ns, _MOST), min(status.st_ctime_ns, _MOST)
        return cls(status.st_ino & _MOST, status.st_size, changed, moved)


class StoredThread(Struct, frozen=True):
    head: StoredHead
    path: Path
    state: FileState
    has_user_message: bool = True
    """Whether the file contains a message of the user."""


def read_stored_thread(path: Path) -> StoredThread:
    """Read the head and the end of a file. Raises `RolloutUnreadable`; its message contains nothing from the file."""
    # Plain dicts are read without validators: a list is often the first request, and building validators takes longer
    # than the page.
    with opened(path) as fd:
        status = os.fstat(fd)
        meta: dict[str, Json] | None = None
        preview: str | None = None
        for raw in islice(head_lines(path, fd, MAX_HEAD_BYTES), MAX_HEAD_LINES):
            record = read_record(raw.data)
            if record is None:
                continue
            if meta is None and record.kind == "session_meta":
                found = record.value()
                meta = found if found is not None and is_session_meta(found) else None
            elif preview is None and record.kind == "event_msg":
                message = message_in(record)
                preview = preview_of(message) if isinstance(message, UserMessage) else None
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


def preview_of(message: UserMessage) -> str:
    """Return the text by which a conversation is listed that begins with this message."""
    text = message.text
    if text.strip() or all(isinstance(part, TextInput) for part in message.sent or message.content):
        return request_in(text)
    return IMAGE


def summarise(stored: StoredThread, default_provider: str, noted: ThreadMetadata) -> ThreadSummary:
    """Return the summary of a thread, with the notes of users about it."""
    head, updated_at = stored.head, stored.state.changed_ns // 1_000_000_000
    facts = asdict(head)
    facts["provider"] = head.provider or default_provider
    facts["git"] = noted.revision(head.id) or head.git
    return ThreadSummary(
        **facts,
        name=noted.name(head.id),
        path=stored.path,
        created_at=_seconds(head.timestamp or "", updated_at),
        updated_at=updated_at,
    )


def is_session_meta(found: Mapping[str, Json]) -> bool:
    """Return whether the payload has the fields that every conversation has."""
    for key in ("id", "timestamp", "cwd", "originator", "cli_version"):  # noqa: SIM110 - the faster form
        if not isinstance(found.get(key), str):
            return False
    return True


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
"""Maximum number of characters of a conversation that are searched. Later text is not found."""
BEFORE, AFTER = 48, 96
"""Number of characters of a snippet before and after a match."""
_MESSAGE: Final = re.compile(rb'(?:_m|M)essage"')
"""Mark of the lines with messages. The others are not decoded: most of a file is none of them."""


def read_message_text(path: Path) -> str:
    """Return the messages of a file in their order, separated by line ends. Raises `RolloutUnreadable`."""
    texts, length = list[str](), 0
    with opened_whole(path) as fd:
        for raw in counting_lines(fd):
            if _MESSAGE.search(raw.data) is None or (record := read_record(raw.data)) is None:
                continue
            if (message := message_in(record)) is None:
                continue
            texts.append(request_in(message.text) if isinstance(message, UserMessage) else message.text)
            length += len(texts[-1]) + 1
            if length >= SEARCHED_CHARACTERS:
                break
    return "\n".join(texts)[:SEARCHED_CHARACTERS]


def snippet(text: str, term: str) -> str | None:
    """Return the text around the first match of `term`, ignoring case; None if there is no match."""
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
    """Return the index in `text` of an index in `text.casefold()`: some characters fold to several."""
    folded = 0
    for place, character in enumerate(text):
        if folded >= folded_place:
            return place
        folded += len(character.casefold())
    return len(text)


MAX_NOTED_BYTES = 64 * 1024 * 1024
"""Maximum number of bytes of a file of notes that are read. Later lines do not count."""

_Place = tuple[int, int]
"""Device and inode of a file."""


class LastLineIndex:
    """The last lines by conversation of one file of notes. All methods block. Thread-safe."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._mutex = threading.Lock()
        self._place: _Place | None = None
        self._read_to = 0
        self._stamp = 0
        self._lines: dict[str, dict[str, Json]] = {}

    def read(self) -> Mapping[str, Mapping[str, Json]]:
        """Return the last lines by conversation id; none if the file cannot be read."""
        with self._mutex:
            try:
                with opened(self.path) as fd:
                    self._catch_up(fd)
            except RolloutUnreadable:
                self._start_anew(None)
            return self._lines

    def append(self, id: str, fields: Mapping[str, Json]) -> None:
        """Append a line about a conversation. Raises `OSError`."""
        line = json.dumps({"id": id, **fields}, separators=(",", ":")).encode()
        with disk.open_locked(self.path, disk.NOTES) as fd:
            disk.append_lines(fd, line + b"\n")
            os.fsync(fd)

    def forget(self, id: str) -> None:
        """Remove every line about this conversation. Raises `OSError`."""
        if id.lower() not in self.read():
            return
        with disk.home_lock(self.path.parent, disk.NOTES):
            fd = disk.open_for_reading(self.path)
            try:
                kept = [line for line in _whole_lines(fd, 0) if _id(parse_object(line)) != id.lower()]
            finally:
                os.close(fd)
            disk.replace_lines(self.path, kept)

    # --- with the mutex held
    def _catch_up(self, fd: int) -> None:
        status = os.fstat(fd)
        place = (status.st_dev, status.st_ino)
        if place != self._place or status.st_size < self._read_to:
            self._start_anew(place)
        elif status.st_mtime_ns == self._stamp and status.st_size == self._read_to:
            return
        self._stamp = status.st_mtime_ns
        changed: dict[str, dict[str, Json]] = {}
        for line in _whole_lines(fd, self._read_to):
            self._read_to += len(line) + 1
            fields = parse_object(line)
            id = _id(fields)
            if fields is not None and id is not None:
                changed[id] = fields
        if changed:
            self._lines = {**self._lines, **changed}  # earlier callers keep the old mapping unchanged

    def _start_anew(self, place: _Place | None) -> None:
        self._lines = {}
        self._place, self._read_to, self._stamp = place, 0, 0


def _whole_lines(fd: int, start: int) -> Iterator[bytes]:
    """Yield the lines from offset `start` on. A line without an end is left out: it is still being written, or torn."""
    end = min(os.fstat(fd).st_size, MAX_NOTED_BYTES)
    return (raw.data for raw in raw_lines(fd, 1, start, end) if raw.whole)


def _id(fields: Mapping[str, Json] | None) -> str | None:
    id = fields.get("id") if fields is not None else None
    return id.lower() if isinstance(id, str) else None


NAMES_FILE = "session_index.jsonl"
METADATA_FILE = "thread_metadata.jsonl"
NOTED_GIT = {"commit_hash": "sha", "branch": "branch", "repository_url": "origin_url"}
"""Fields of a repository's state, by their names here; the values are their names in the file."""


class ThreadMetadata(Struct, frozen=True):
    """The notes at one moment."""

    names: Mapping[str, Mapping[str, Json]]
    metadata: Mapping[str, Mapping[str, Json]]

    def name(self, id: str) -> str | None:
        line = self.names.get(id.lower())
        return None if line is None else _name(line)

    def revision(self, id: str) -> GitInfo | None:
        """Return the state of the repository that replaces the stored one; None if there is none."""
        line = self.metadata.get(id.lower())
        match None if line is None else line.get("git_info"):
            case dict() as git:
                return GitInfo(**{name: text_of(git, noted) for name, noted in NOTED_GIT.items()})
            case _:
                return None

    def named(self, wanted: Callable[[str], bool]) -> list[str]:
        """Return the ids of the conversations whose names are wanted."""
        return [id for id, line in self.names.items() if (name := _name(line)) is not None and wanted(name)]


class MetadataStore:
    """The notes of one home. All methods block. Thread-safe."""

    def __init__(self, home: Path, now: Callable[[], float]) -> None:
        """Open the notes of a home. `now` returns seconds since 1970."""
        self._names = LastLineIndex(home / NAMES_FILE)
        self._metadata = LastLineIndex(home / METADATA_FILE)
        self._now = now

    def read(self) -> ThreadMetadata:
        return ThreadMetadata(self._names.read(), self._metadata.read())

    def set_name(self, id: str, name: str) -> None:
        """Set the name of a conversation. Raises `OSError`."""
        self._names.append(id, {"thread_name": name, "updated_at": self._stamp()})

    def set_revision(self, id: str, revision: GitInfo) -> None:
        """Store another state of the repository. Raises `OSError`."""
        git = {noted: getattr(revision, name) for name, noted in NOTED_GIT.items()}
        self._metadata.append(id, {"git_info": git, "updated_at": self._stamp()})

    def forget(self, id: str) -> None:
        """Remove the name and metadata of a conversation. Raises `OSError`."""
        self._names.forget(id)
        self._metadata.forget(id)

    def _stamp(self) -> str:
        return datetime.fromtimestamp(self._now(), UTC).isoformat(timespec="milliseconds")[:-6] + "Z"


def _name(line: Mapping[str, Json]) -> str | None:
    return text_of(line, "thread_name") or None
