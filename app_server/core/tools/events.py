"""What tools emit events through: the turn's emitter, as far as they need it."""

from __future__ import annotations

from typing import Protocol

from protocol.engine.events import EngineEvent
from protocol.engine.items import Item


class BegunItem(Protocol):
    """An item that began in an earlier turn and goes on."""

    @property
    def started_ms(self) -> int: ...


class TurnEvents(Protocol):
    """Items begin, and end exactly once: by `complete`, or cut with their turn."""

    @property
    def turn_id(self) -> str: ...

    def emit(self, event: EngineEvent, *, wake: bool = True) -> None: ...

    def emit_under(self, turn_id: str, event: EngineEvent) -> None:
        """An event of an item that began in the turn `turn_id` and goes on in this one."""
        ...

    def start(self, item: Item) -> None: ...

    def update(self, item: Item) -> None:
        """What an open item is by now, for the case that it is cut."""
        ...

    def complete(self, item: Item) -> None: ...

    def show(self, item: Item) -> None:
        """An item that begins and ends at once."""
        ...

    def detach(self, item_id: str) -> BegunItem:
        """The item outlives the turn: `complete_detached` ends it, in whatever turn that is."""
        ...

    def complete_detached(self, item: Item, begun: BegunItem, turn_id: str, *, cut: bool = False) -> None: ...
