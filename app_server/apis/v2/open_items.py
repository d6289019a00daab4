"""Items that have begun and not ended, under ids that no other item of the thread has.

The engine's ids are those of the provider or the model, which may use one again, even before the first has ended.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from dataclasses import field, replace

from app_server.core.rollout.turn_fold import ItemIds
from protocol.engine.events import OutputStream
from protocol.engine.items import AgentMessage, Item, Plan
from protocol.records import dataclass

PIECE = 8 * 1024
"""Bytes of output in one notification at most: clients read lines of 64 KiB, and each byte may need an escape."""
WIDEST = 4
"""Bytes of a character at most."""


@dataclass(slots=True)
class OutputDecoder:
    """The text of one stream of output, whose characters may be cut in two between the chunks."""

    _decoder: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8")("replace")
    )

    def pieces(self, chunk: bytes, *, last: bool = False) -> Iterator[str]:
        text = self._decoder.decode(chunk, last)
        step = PIECE if text.isascii() else PIECE // WIDEST
        for start in range(0, len(text), step):
            yield text[start : start + step]


@dataclass(slots=True)
class OpenItem:
    turn_id: str
    engine_id: str
    item: Item
    """As it began, under its id in the thread."""
    started_ms: int
    said: list[str] = field(default_factory=list)
    """Deltas of a message."""
    heads: dict[str, bytes] = field(default_factory=dict)
    """By method: all that comes before the text of a delta."""
    _outputs: dict[OutputStream, OutputDecoder] = field(default_factory=dict)

    def output(self, stream: OutputStream) -> OutputDecoder:
        text = self._outputs.get(stream)
        if text is None:
            text = self._outputs[stream] = OutputDecoder()
        return text

    def rest_of_output(self) -> Iterator[str]:
        """What is left of a character whose end never came."""
        for text in self._outputs.values():
            yield from text.pieces(b"", last=True)

    def so_far(self) -> Item:
        said = "".join(self.said)
        match self.item:
            case AgentMessage() if said:
                return replace(self.item, content=(said,))
            case Plan() if said:
                return replace(self.item, text=said)
            case _:
                return self.item


@dataclass(slots=True)
class OpenItems:
    _ids: ItemIds
    _open: dict[tuple[str, str], OpenItem] = field(default_factory=dict)
    """By turn and by the engine's id."""

    def begin(self, turn_id: str, item: Item, started_ms: int) -> OpenItem:
        unique = replace(item, id=self._ids.begin_and_end(item.id))
        opened = OpenItem(turn_id, item.id, unique, started_ms)
        self._open[turn_id, item.id] = opened
        return opened

    def get(self, turn_id: str, engine_id: str) -> OpenItem | None:
        return self._open.get((turn_id, engine_id))

    def end(self, opened: OpenItem) -> None:
        self._open.pop((opened.turn_id, opened.engine_id), None)

    def latest(self, turn_id: str | None, engine_id: str) -> OpenItem | None:
        """The one of the turn, or of an earlier one: a command may go on after its turn."""
        exact = self._open.get((turn_id or "", engine_id))
        if exact is not None:
            return exact
        return next((each for each in reversed(self._open.values()) if each.engine_id == engine_id), None)

    def of_turn(self, turn_id: str) -> list[OpenItem]:
        return [each for each in self._open.values() if each.turn_id == turn_id]
