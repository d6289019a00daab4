"""A stored session as it is sent again: its items, the ids that they have, and the settings of its last turn."""

from __future__ import annotations

from pathlib import Path

from app_server.core.rollout.head import read_summary
from app_server.core.rollout.last_settings import last_turn_context
from app_server.core.rollout.stored_items import StoredItems, read_stored_items
from app_server.core.rollout.thread_notes import ThreadNotes
from protocol.ids import ConversationId
from protocol.records import dataclass
from protocol.rollout import TurnContextItem


@dataclass(frozen=True, slots=True)
class StoredSession:
    stored: StoredItems
    title: str
    """The name that the user gave it, else its first words."""
    settings: TurnContextItem | None
    """None: no turn was stored."""


def read_stored(path: Path, id: ConversationId, notes: ThreadNotes) -> StoredSession:
    """Blocks. Raises RolloutUnreadable and OSError."""
    title = notes.read().name(id) or read_summary(path, "").preview
    return StoredSession(read_stored_items(path, id), title, last_turn_context(path))
