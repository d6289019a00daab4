"""The threads that a picker offers: what was typed filters them, one of them is chosen. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from protocol.v2.thread import Thread


class ThreadChoices:
    """`selected` is an index of `matching`; 0 where nothing matches."""

    def __init__(self, threads: Sequence[Thread]) -> None:
        self._threads = threads
        self.matching = threads
        self.selected = 0

    @property
    def chosen(self) -> Thread | None:
        return self.matching[self.selected] if self.matching else None

    def filter(self, text: str) -> None:
        """Keep the threads that contain every word of the text. The chosen one stays chosen if it is among them."""
        before = self.chosen
        words = text.casefold().split()
        self.matching = [each for each in self._threads if _contains(each, words)]
        ids = [each.id for each in self.matching]
        self.selected = ids.index(before.id) if before is not None and before.id in ids else 0

    def move(self, by: int) -> None:
        """Up or down, to the ends of the list at most."""
        self.selected = max(0, min(self.selected + by, len(self.matching) - 1))

    def shown(self, rows: int) -> tuple[int, Sequence[Thread]]:
        """So many threads around the chosen one, and the index of the first of them."""
        first = max(0, min(self.selected - rows // 2, len(self.matching) - rows))
        return first, self.matching[first : first + rows]


def title_of(thread: Thread) -> str:
    """Its name, or the beginning of what was said, in one line."""
    return " ".join((thread.name or thread.preview or "(nothing said)").split())


def _contains(thread: Thread, words: Sequence[str]) -> bool:
    text = f"{thread.name or ''} {thread.preview} {thread.cwd}".casefold()
    return all(word in text for word in words)
