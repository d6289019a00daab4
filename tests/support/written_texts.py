"""Texts of items as the engine writes them: the events for tests that play a turn without an engine."""

from app_server_protocol.engine.events import ItemTextGrown
from app_server_protocol.engine.item_text import WHOLE, ItemText, Part


class WrittenTexts:
    """The texts of the items of one turn."""

    def __init__(self) -> None:
        self._texts: dict[tuple[str, Part], ItemText] = {}

    def grow(self, item_id: str, piece: str, part: Part = WHOLE) -> ItemTextGrown:
        """Return the event that a text has grown by a piece."""
        text = self._texts.setdefault((item_id, part), ItemText())
        text.pieces.append(piece)
        return ItemTextGrown(item_id, part, text, len(text.pieces))


def grown(item_id: str, piece: str, part: Part = WHOLE) -> ItemTextGrown:
    """Return the event that a text has begun with a piece."""
    return WrittenTexts().grow(item_id, piece, part)
