"""A conversation as turns with items: what is read back of it, and what a subscriber that joins late is shown."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from protocol.engine.errors import TurnError
from protocol.engine.events import TurnKind
from protocol.engine.items import Item


class TurnState(StrEnum):
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


class EndedItem(Struct, frozen=True, gc=False):
    """An item that came to its end, well or not. Its id is unique within the conversation."""

    item: Item
    started_ms: int | None
    """Milliseconds since 1970; None where old files do not say."""
    ended_ms: int | None
    cut: bool = False


class TurnRenamed(Struct, frozen=True, gc=False):
    """A stored turn whose first lines do not name it: its id was `before` to whoever read them."""

    before: str
    after: str


class TurnRecord(Struct, frozen=True, kw_only=True, gc=False):
    id: str
    kind: TurnKind = TurnKind.REGULAR
    state: TurnState = TurnState.IN_PROGRESS
    items: tuple[EndedItem, ...] = ()
    error: TurnError | None = None
    started_at: float | None = None
    """Seconds since 1970; None where old files do not say."""
    ended_at: float | None = None
    seconds: float | None = None
