"""The user's message history over all conversations: `history.jsonl`, one line per message, oldest first.

Several servers append to it, under a lock. A position in it is a log id and an offset. The log id depends on the file's
inode and its first line, so that after a truncation a lookup of an old position finds nothing rather than a wrong line.
Sessions use it by `SharedMessages`, in threads and in order.
"""

from __future__ import annotations

import os
import zlib
from pathlib import Path

import anyio
import msgspec
from msgspec import Struct

from app_server.engine.config.config_values import HistoryConfig, HistoryPersistence
from app_server.engine.storage import disk
from app_server.engine.storage.record import parse_object
from app_server.engine.support.engine_errors import RolloutUnreadable
from app_server.engine.support.worker_threads import run_in_thread
from app_server_protocol.encoding import escaped_json
from app_server_protocol.engine.notices import HistoryEntry

FILE_NAME = "history.jsonl"
MAX_HISTORY_BYTES = 256 * 1024 * 1024


def log_id_of(fd: int, content: bytes) -> int:
    """Return the log id of the history file. It fits into 53 bits, for clients with floating-point numbers. An inode
    alone would not do, because it may be reused after a truncation.
    """
    first_line = content[: content.find(b"\n") + 1]
    return (os.fstat(fd).st_ino & 0x1FFFFF) << 32 | zlib.crc32(first_line)


KEPT_SHARE = 0.8
"""Share of the maximum size that a truncation keeps, so that not every new message truncates the file."""


class MessageHistory(Struct, frozen=True):
    """The message history of one home. All methods block: call them in a thread."""

    home: Path
    config: HistoryConfig

    @property
    def path(self) -> Path:
        return self.home / FILE_NAME

    def append(self, entry: HistoryEntry) -> None:
        """Append a message, and remove the oldest beyond the configured size. Raises `OSError`."""
        if self.config.persistence is HistoryPersistence.NONE:
            return
        fields = {"session_id": entry.conversation_id, "ts": entry.ts, "text": entry.text}
        line = escaped_json(fields)
        with disk.open_locked(self.path, disk.HISTORY) as fd:
            size, limit = disk.append_lines(fd, line + b"\n"), self.config.max_bytes
            if limit is not None and size > limit:
                _cut(self.path, fd, limit)

    def metadata(self) -> tuple[int, int]:
        """Return the log id and the number of messages; zeros if there is no history."""
        log_id, content = self._read()
        return log_id, content.count(b"\n")

    def lookup(self, log_id: int, offset: int) -> HistoryEntry | None:
        """Return the message at an offset; None if there is none, or if the log id does not match."""
        found, content = self._read()
        lines = content.split(b"\n") if found == log_id else []
        match parse_object(lines[offset]) if 0 <= offset < len(lines) else None:
            case {"session_id": str(conversation), "ts": int(ts), "text": str(text)}:
                return HistoryEntry(conversation_id=conversation, ts=ts, text=text)
            case _:
                return None

    def _read(self) -> tuple[int, bytes]:
        """Return the log id and the content of the file."""
        try:
            with disk.opened(self.path) as fd:
                content = _content(fd)
                return log_id_of(fd, content), content
        except RolloutUnreadable:
            return 0, b""


def _content(fd: int) -> bytes:
    return os.pread(fd, min(os.fstat(fd).st_size, MAX_HISTORY_BYTES), 0)


def _cut(path: Path, fd: int, max_bytes: int) -> None:
    """Replace the file by one with the newest lines. At least the last line is kept."""
    lines = _content(fd).removesuffix(b"\n").split(b"\n")
    kept, size = len(lines) - 1, len(lines[-1]) + 1
    while kept and size + len(lines[kept - 1]) + 1 <= max_bytes * KEPT_SHARE:
        kept -= 1
        size += len(lines[kept]) + 1
    disk.replace_lines(path, lines[kept:])


STORE_SECONDS = 2 * disk.LOCK_SECONDS
"""Maximum time that the end of a conversation waits for its messages to be stored, in seconds. It is enough for two
waits for the lock: for a message that is being appended, and for those after it.
"""


class SharedMessages(Struct, frozen=True):
    file: MessageHistory
    _order: anyio.Lock = msgspec.field(default_factory=anyio.Lock)
    """Lock that keeps the messages in the order in which they were passed."""

    async def append(self, entry: HistoryEntry) -> None:
        """Store the message, even if the conversation ends in the meantime. Raises OSError and ConversationError."""
        with anyio.move_on_after(STORE_SECONDS, shield=True):
            async with self._order:
                await run_in_thread(self.file.append, entry)

    async def lookup(self, log_id: int, offset: int) -> HistoryEntry | None:
        """Return the message at an offset, like `MessageHistory.lookup`."""
        async with self._order:
            return await run_in_thread(self.file.lookup, log_id, offset)

    async def metadata(self) -> tuple[int, int]:
        """Return the log id and the number of messages."""
        return await run_in_thread(self.file.metadata)
