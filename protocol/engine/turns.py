"""A conversation as turns with items: what is read back of it, and what a subscriber that joins late is shown."""

from __future__ import annotations

from enum import StrEnum

from protocol.engine.errors import TurnError
from protocol.engine.events import TurnKind
from protocol.engine.items import Item
from protocol.records import dataclass


class TurnState(StrEnum):
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class EndedItem:
    """An item that came to its end, well or not. Its id is unique within the conversation."""

    item: Item
    started_ms: int | None
    """Milliseconds since 1970; None where old files do not say."""
    ended_ms: int | None
    cut: bool = False


@dataclass(frozen=True, slots=True)
class TurnRenamed:
    """A stored turn whose first lines do not name it: its id was `before` to whoever read them."""

    before: str
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRecord:
    id: str
    kind: TurnKind = TurnKind.REGULAR
    state: TurnState = TurnState.IN_PROGRESS
    items: tuple[EndedItem, ...] = ()
    error: TurnError | None = None
    started_at: float | None = None
    """Seconds since 1970; None where old files do not say."""
    ended_at: float | None = None
    seconds: float | None = None
