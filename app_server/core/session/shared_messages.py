"""The message history that all conversations share, as one session uses it: in threads, and in order."""

from __future__ import annotations

import anyio
import msgspec
from msgspec import Struct

from app_server.core.rollout.history_file import LOCK_SECONDS, MessageHistory
from app_server.core.threads import run_in_thread
from protocol.events.notices import HistoryEntry

STORE_SECONDS = 2 * LOCK_SECONDS
"""How long the end of a conversation may wait for its messages: one that is being appended, and those behind it."""


class SharedMessages(Struct, frozen=True):
    file: MessageHistory
    _order: anyio.Lock = msgspec.field(default_factory=anyio.Lock)
    """Messages are stored in the order in which they were handed over."""

    async def append(self, entry: HistoryEntry) -> None:
        """Stores the message, even if the conversation ends meanwhile. Raises OSError and ConversationError."""
        with anyio.move_on_after(STORE_SECONDS, shield=True):
            async with self._order:
                await run_in_thread(self.file.append, entry)

    async def lookup(self, log_id: int, offset: int) -> HistoryEntry | None:
        """As `MessageHistory.lookup`."""
        async with self._order:
            return await run_in_thread(self.file.lookup, log_id, offset)

    async def metadata(self) -> tuple[int, int]:
        """As `MessageHistory.metadata`."""
        return await run_in_thread(self.file.metadata)
