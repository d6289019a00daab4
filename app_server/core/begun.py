"""A conversation that was begun before the engine was loaded. Fast to import."""

from __future__ import annotations

from datetime import datetime

from protocol.ids import ConversationId
from protocol.records import dataclass


@dataclass(frozen=True, slots=True)
class Begun:
    """Its first line is stored, and its client knows its id. The engine goes on with it."""

    id: ConversationId
    at: datetime
    """Local time with a time zone; with the id it gives the path of the file."""
