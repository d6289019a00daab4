"""Texts of items as decoders write them: the events for tests that play an answer or a turn without a provider."""

from collections.abc import Callable

from app_server.engine.model.prompt import OutputTextDelta, ReasoningContentDelta, ReasoningSummaryTextDelta
from app_server.engine.turn.emitter import EventSink, TurnEmitter
from app_server_protocol.engine.events import ItemTextGrown
from app_server_protocol.engine.item_text import WHOLE, ItemText, Part
from app_server_protocol.engine.items import Item


class WrittenTexts:
    """The texts of the items of one turn."""

    def __init__(self) -> None:
        self._texts: dict[tuple[str, Part], ItemText] = {}

    def grow(self, item_id: str, piece: str, part: Part = WHOLE) -> ItemTextGrown:
        """Return the event that a text has grown by a piece."""
        text = self._texts.setdefault((item_id, part), ItemText())
        return ItemTextGrown(item_id, part, text, text.add(piece))


class WritingTurn(TurnEmitter):
    """Turn without an answer, which writes the texts of its items itself."""

    def __init__(self, outbox: EventSink, operation_id: str, turn_id: str, now: Callable[[], float]) -> None:
        super().__init__(outbox, operation_id, turn_id, now)
        self._written: dict[str, WrittenTexts] = {}

    def start(self, item: Item, *, announced: bool = True, own_id: bool = False) -> None:
        self._written[item.id] = WrittenTexts()
        super().start(item, announced=announced, own_id=own_id)

    def write(self, item_id: str, piece: str, part: Part = WHOLE) -> None:
        grown = self._written[item_id].grow(item_id, piece, part)
        self.grow(item_id, grown.text, grown.end, part)


def grown(item_id: str, piece: str, part: Part = WHOLE) -> ItemTextGrown:
    """Return the event that a text has begun with a piece."""
    return WrittenTexts().grow(item_id, piece, part)


def text_deltas(*pieces: str) -> list[OutputTextDelta]:
    """Return the events of a message that comes in these pieces."""
    text = ItemText(list(pieces))
    return [OutputTextDelta(text, end) for end, _ in enumerate(pieces, 1)]


def summary_deltas(*pieces: str, index: int = 0) -> list[ReasoningSummaryTextDelta]:
    """Return the events of a part of a summary that comes in these pieces."""
    text = ItemText(list(pieces))
    return [ReasoningSummaryTextDelta(text, end, index) for end, _ in enumerate(pieces, 1)]


def content_deltas(*pieces: str, index: int = 0) -> list[ReasoningContentDelta]:
    """Return the events of a part of raw reasoning that comes in these pieces."""
    text = ItemText(list(pieces))
    return [ReasoningContentDelta(text, end, index) for end, _ in enumerate(pieces, 1)]
