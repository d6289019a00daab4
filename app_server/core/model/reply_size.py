"""Limits the size of one response of a model. Pure.

Complete items stay in memory until the response ends, because only then is it certain that the turn keeps them. So the
memory for an endless response must be limited.
"""

from __future__ import annotations

from app_server.core.model.model_errors import ResponseTooLarge

MAX_ANSWER_BYTES = 256 * 1024 * 1024
"""Of one answer, all its events together. A model writes some hundred thousand tokens at most, with about 300 bytes of
stream for each, and its provider repeats the text once or twice.
"""

MAX_ITEMS = 10_000
"""Messages, thoughts and calls of one answer. Models make a handful; more than a hundred is unheard of."""

MAX_ITEM_BYTES = 64 * 1024 * 1024
"""Of all items of one answer: as much as one event may hold."""

PIECE_OVERHEAD = 64
"""What Python adds to a piece of text that is kept by itself."""


class ReplySize:
    """Counts what of an answer is kept. Every method raises ResponseTooLarge."""

    __slots__ = ("_bytes", "_items")

    def __init__(self) -> None:
        self._bytes = self._items = 0

    def item(self, size: int) -> None:
        """One more item, of so many bytes."""
        self._items += 1
        if self._items > MAX_ITEMS:
            raise ResponseTooLarge(f"more than {MAX_ITEMS} items in one answer")
        self._add(size)

    def piece(self, text: str) -> None:
        """A piece of an item that is put together here."""
        self._add(len(text) + PIECE_OVERHEAD)

    def _add(self, size: int) -> None:
        self._bytes += size
        if self._bytes > MAX_ITEM_BYTES:
            raise ResponseTooLarge(f"items of more than {MAX_ITEM_BYTES >> 20} MiB in one answer")
