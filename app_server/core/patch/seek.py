"""Locates the lines of a hunk in a file. Pure.

Four levels, each less strict than the one before: exact; without trailing whitespace; without whitespace on either
side; with typographic dashes, quotes and spaces replaced by plain ones. Each level searches the whole file before the
next one starts, and the first match counts. Lines that must be at the end are searched only there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212"
SINGLE_QUOTES = "\u2018\u2019\u201a\u201b"
DOUBLE_QUOTES = "\u201c\u201d\u201e\u201f"
SPACES = "\u00a0\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"

PLAIN = str.maketrans(
    {
        **dict.fromkeys(DASHES, "-"),
        **dict.fromkeys(SINGLE_QUOTES, "'"),
        **dict.fromkeys(DOUBLE_QUOTES, '"'),
        **dict.fromkeys(SPACES, " "),
    }
)


def _plain(line: str) -> str:
    return line.strip().translate(PLAIN)


LEVELS: tuple[Callable[[str], str], ...] = (str, str.rstrip, str.strip, _plain)


class Haystack:
    """The lines of one file, with the normalised lines of each level cached for the next hunk."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._exact = list(lines)
        self._by_level: dict[int, list[str]] = {0: self._exact}

    def __len__(self) -> int:
        return len(self._exact)

    def find(self, wanted: Sequence[str], start: int, *, at_end: bool = False) -> int | None:
        """The index of the first of `wanted` at or after `start`, or None."""
        last = len(self) - len(wanted)
        first = max(start, last) if at_end else start
        if first > last:
            return None
        for level, simplify in enumerate(LEVELS):
            lines = self._level(level)
            found = _index(lines, [simplify(line) for line in wanted], first, last)
            if found is not None:
                return found
        return None

    def _level(self, level: int) -> list[str]:
        if level not in self._by_level:
            self._by_level[level] = [LEVELS[level](line) for line in self._exact]
        return self._by_level[level]


def _index(lines: list[str], wanted: list[str], first: int, last: int) -> int | None:
    if not wanted:
        return first
    at = first
    while True:
        try:
            at = lines.index(wanted[0], at, last + 1)
        except ValueError:
            return None
        if lines[at : at + len(wanted)] == wanted:
            return at
        at += 1
