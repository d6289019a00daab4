"""The part of the turn's emitter that tools use."""

from __future__ import annotations

from typing import Protocol

from protocol.engine.events import EngineEvent
from protocol.engine.items import Item


class BegunItem(Protocol):
    """An item that started in an earlier turn and is still running."""

    @property
    def started_ms(self) -> int: ...


class TurnEvents(Protocol):
    """Every item starts once and ends once: by `complete`, or when its turn is cut."""

    @property
    def turn_id(self) -> str: ...

    def emit(self, event: EngineEvent, *, wake: bool = True) -> None: ...

    def emit_under(self, turn_id: str, event: EngineEvent) -> None:
        """Emit an event of an item that started in the turn `turn_id` and is still running."""
        ...

    def start(self, item: Item) -> None: ...

    def update(self, item: Item) -> None:
        """Replace an open item, so that a cut emits its latest state."""
        ...

    def complete(self, item: Item) -> None: ...

    def show(self, item: Item) -> None:
        """An item that begins and ends at once."""
        ...

    def detach(self, item_id: str) -> BegunItem:
        """The item outlives the turn: `complete_detached` ends it, in whatever turn that is."""
        ...

    def apart(self) -> TurnEvents:
        """For what goes on after the turn: the same, outside of all operations."""
        ...

    def complete_detached(self, item: Item, begun: BegunItem, turn_id: str, *, cut: bool = False) -> None: ...
