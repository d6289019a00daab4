"""Items that have begun and not ended, under ids that are unique in the conversation. Pure.

The engine's ids are those of the provider or the model, which may use an id again, even before its first item has
ended. APIs whose clients follow items store here what they need of an item to write its next message.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

import msgspec
from msgspec import Struct

from app_server.engine.storage.turn_fold import ItemIds
from app_server_protocol.engine.item_values import ExecOutputStream
from app_server_protocol.engine.items import AgentMessage, CommandExecution, Item, Plan, Reasoning
from app_server_protocol.values import replace

Shown = TypeVar("Shown")
"""State that an API keeps for each item: how it has shown the item so far."""


MOST_PRINTED = 1 << 20
"""Maximum length of a running command's output that is kept for clients that join, in characters."""


class ItemInProgress(Struct, Generic[Shown]):
    turn_id: str
    engine_id: str
    item: Item
    """The item as it began, with its id in the conversation."""
    started_ms: int
    shown: Shown
    deltas: list[str] = msgspec.field(default_factory=list)
    """Deltas of a message; for a command its output, up to `MOST_PRINTED` characters."""
    thoughts: dict[tuple[bool, int], list[str]] = msgspec.field(default_factory=dict)
    """Deltas of reasoning, by whether they belong to its summary, and by their part."""
    _printed: int = 0
    _outputs: dict[ExecOutputStream, codecs.IncrementalDecoder] = msgspec.field(default_factory=dict)

    def output(self, stream: ExecOutputStream, chunk: bytes) -> str:
        """Decode a chunk; a character may be split between it and the next chunk."""
        decoder = self._outputs.get(stream)
        if decoder is None:
            decoder = self._outputs[stream] = codecs.getincrementaldecoder("utf-8")("replace")
        text = decoder.decode(chunk)
        if self._printed < MOST_PRINTED:
            self._printed += len(text)
            self.deltas.append(text)
        return text

    def think(self, delta: str, index: int, *, summary: bool) -> None:
        self.thoughts.setdefault((summary, index), []).append(delta)

    def rest_of_output(self) -> Iterator[str]:
        """Yield the undecoded rest: characters whose ends never arrived."""
        for decoder in self._outputs.values():
            yield decoder.decode(b"", final=True)

    def so_far(self) -> Item:
        """Return the item with its content so far."""
        text = "".join(self.deltas)
        match self.item:
            case AgentMessage() if text:
                return replace(self.item, content=(text,))
            case Plan() if text:
                return replace(self.item, text=text)
            case CommandExecution() if text:
                return replace(self.item, output=text)
            case Reasoning() if self.thoughts:
                return replace(self.item, summary=self._thought(True), content=self._thought(False))
            case _:
                return self.item

    def _thought(self, summary: bool) -> tuple[str, ...]:
        parts = sorted((index, texts) for (of, index), texts in self.thoughts.items() if of is summary)
        return tuple("".join(texts) for _, texts in parts)


class ItemsInProgress(Struct, Generic[Shown]):
    ids: ItemIds
    _open: dict[tuple[str, str], ItemInProgress[Shown]] = msgspec.field(default_factory=dict)
    """Open items by turn and by the engine's id."""

    def begin(
        self, turn_id: str, item: Item, started_ms: int, show: Callable[[Item], Shown]
    ) -> ItemInProgress[Shown]:
        """Add an item that has begun. `show` receives the item with its id in the conversation."""
        unique = replace(item, id=self.ids.reserve(item.id))
        opened = ItemInProgress(turn_id, item.id, unique, started_ms, show(unique))
        self._open[turn_id, item.id] = opened
        return opened

    def get(self, turn_id: str, engine_id: str) -> ItemInProgress[Shown] | None:
        return self._open.get((turn_id, engine_id))

    def end(self, opened: ItemInProgress[Shown]) -> None:
        self._open.pop((opened.turn_id, opened.engine_id), None)

    def latest(self, turn_id: str | None, engine_id: str) -> ItemInProgress[Shown] | None:
        """Return the open item of the turn, or of an earlier turn: a command may go on after its turn."""
        exact = self._open.get((turn_id or "", engine_id))
        if exact is not None:
            return exact
        return next((each for each in reversed(self._open.values()) if each.engine_id == engine_id), None)

    def all(self) -> list[ItemInProgress[Shown]]:
        """Return all open items, also those that go on after their turns have ended."""
        return list(self._open.values())

    def of_turn(self, turn_id: str) -> list[ItemInProgress[Shown]]:
        return [each for each in self._open.values() if each.turn_id == turn_id]
