"""The client's editor as tools reach it, and when commands and patches changed files under it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from msgspec import Struct

COARSE_NS: Final = 20_000_000
"""So much earlier than it was may the time of a file's change be, for the system's clock of files is coarse."""
MOST_SPANS: Final = 1000


class EditorFiles(Protocol):
    """The client's editor. Both answer in any order, and may never answer."""

    async def read(self, path: str) -> str | None:
        """Return the text of a file as the editor has it; None where it does not say."""
        ...

    async def write(self, path: str, text: str) -> bool:
        """Put a text into the editor and save it; False where that failed."""
        ...


class DiskChanges:
    """When commands and patches of a conversation changed files: what the editor shows of those may be old."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        """`now_ns` gives nanoseconds since 1970, as times of files are."""
        self._now_ns = now_ns
        self._spans: list[tuple[int, int]] = []
        self._since: int | None = None
        """A command runs, or has run, whose end is not known."""

    @contextmanager
    def span(self) -> Iterator[None]:
        begin = self._now_ns() - COARSE_NS
        try:
            yield
        finally:
            self._spans.append((begin, self._now_ns()))
            if len(self._spans) > MOST_SPANS:
                first, second, *rest = self._spans
                self._spans = [(first[0], second[1]), *rest]

    def open_end(self) -> None:
        """Note that from now on any file may be changed at any time."""
        if self._since is None:
            self._since = self._now_ns() - COARSE_NS

    def cover(self, changed_ns: int) -> bool:
        if self._since is not None and changed_ns >= self._since:
            return True
        return any(begin <= changed_ns <= end for begin, end in self._spans)


class EditorAccess(Struct, frozen=True):
    """Of one conversation."""

    files: EditorFiles
    changes: DiskChanges
