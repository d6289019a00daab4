"""What a user chooses among, filtered by what is typed: stored threads, models. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from msgspec import Struct

T = TypeVar("T")


class PickerRow(Struct, Generic[T], frozen=True):
    """A row of a list: what it is, and more about it."""

    text: str
    note: str
    value: T


class Choices(Generic[T]):
    """`selected` is an index of `matching`; 0 where nothing matches."""

    def __init__(self, what: str, rows: Sequence[PickerRow[T]]) -> None:
        """Say what is chosen, in a word."""
        self.what = what
        self._rows = rows
        self.matching = rows
        self.selected = 0

    @property
    def chosen(self) -> PickerRow[T] | None:
        return self.matching[self.selected] if self.matching else None

    def filter(self, text: str) -> None:
        """Keep the rows that contain every word of the text. The chosen one stays chosen if it is among them."""
        before = self.chosen
        words = text.casefold().split()
        self.matching = [each for each in self._rows if _contains(each, words)]
        at = next((number for number, each in enumerate(self.matching) if each is before), 0)
        self.selected = at

    def move(self, by: int) -> None:
        """Move the choice up or down, to the ends of the list at most."""
        self.selected = max(0, min(self.selected + by, len(self.matching) - 1))

    def shown(self, rows: int) -> tuple[int, Sequence[PickerRow[T]]]:
        """Return so many rows around the chosen one, and the index of the first of them."""
        first = max(0, min(self.selected - rows // 2, len(self.matching) - rows))
        return first, self.matching[first : first + rows]


def _contains(row: PickerRow[T], words: Sequence[str]) -> bool:
    text = f"{row.text} {row.note}".casefold()
    return all(word in text for word in words)
