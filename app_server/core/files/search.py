"""Fuzzy file search: the files below some folders that match what a user has typed so far.

Walking, filtering and scoring run in a worker thread and regularly check for cancellation. A search cancels an earlier
one with the same token.
"""

from __future__ import annotations

import heapq
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

from app_server.core.files.fuzzy import (
    Word,
    folded,
    parse_query,
    positions,
    score,
    shape_table,
    subsequence_pattern,
)
from app_server.core.files.walk import SEPARATOR, Tree
from app_server.core.threads import run_in_thread
from protocol.records import dataclass

LIMIT = 50
"""Maximum number of matches for each root."""
MAX_TREES = 8
MAX_QUERY = 512
CHECK_EVERY = 512

Stop = Callable[[], bool]

_UNSHOWABLE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class FileMatch:
    """A matching file: its path, its score, and the indices of the matching characters."""

    root: str
    path: str
    file_name: str
    score: int
    indices: tuple[int, ...]


async def search_files(query: str, roots: Sequence[str | Path]) -> list[FileMatch]:
    """One search without a cache. Cancel it to end it."""
    return await FileSearch(lambda: 0).search(query, roots)


class FileSearch:
    """Searches for all clients of a server; caches the trees of the latest searches."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self._now_ns = now_ns
        self._trees: dict[str, Tree] = {}
        self._walking = threading.Lock()
        self._running: dict[str, threading.Event] = {}
        self._last_fold: tuple[tuple[bool, bool] | None, str, str] = (None, "", "")

    async def search(
        self, query: str, roots: Sequence[str | Path], token: str | None = None
    ) -> list[FileMatch]:
        """The best matches, best first. Empty if a later search with the same token replaced this one."""
        stop = threading.Event()
        if token is not None:
            if earlier := self._running.pop(token, None):
                earlier.set()
            self._running[token] = stop
        try:
            find = partial(self.find, query, roots, stop.is_set)
            return await run_in_thread(find, abandon_on_cancel=True)
        finally:
            stop.set()
            if token is not None and self._running.get(token) is stop:
                del self._running[token]

    def find(self, query: str, roots: Sequence[str | Path], stop: Stop) -> list[FileMatch]:
        """The same, synchronously."""
        words = parse_query(query[:MAX_QUERY])
        if not words:
            return []
        matches: list[FileMatch] = []
        for root in roots:
            with self._walking:
                listing = self._tree(os.path.abspath(root)).listing(stop)
            if listing is None or (found := self._best(words, listing, stop)) is None:
                return []
            matches += [_match(words, str(root), points, path) for points, path in found]
        matches.sort(key=lambda match: (-match.score, match.path))
        return matches

    def _best(self, words: Sequence[Word], listing: str, stop: Stop) -> list[tuple[int, str]] | None:
        """The best files of a listing. Folding a non-ASCII listing is slow, so the last result is cached."""
        kind = (words[0].cased, words[0].accented)
        last_kind, last_listing, fold = self._last_fold
        if last_kind != kind or last_listing != listing:
            fold = folded(listing, words[0])
            self._last_fold = (kind, listing, fold)
        return _best(words, listing, fold, stop)

    def _tree(self, root: str) -> Tree:
        tree = self._trees.pop(root, None) or Tree(root.rstrip("/") + "/", self._now_ns)
        self._trees[root] = tree
        while len(self._trees) > MAX_TREES:
            del self._trees[next(iter(self._trees))]
        return tree


def _best(words: Sequence[Word], listing: str, fold: str, stop: Stop) -> list[tuple[int, str]] | None:
    """The best files of a listing with their scores; None when stopped."""
    found: list[tuple[int, str]] = []
    scorer = _Scorer(words, listing)
    for number, (start, end) in enumerate(_candidates(words, fold)):
        if number % CHECK_EVERY == 0 and stop():
            return None
        points = scorer.score(start, end)
        if points is not None:
            found.append((-points, listing[start:end]))
    return [(-points, path) for points, path in heapq.nsmallest(LIMIT, found)]


def _candidates(words: Sequence[Word], fold: str) -> Iterator[tuple[int, int]]:
    """The ranges of the listing's paths that contain the first word's characters in order."""
    for match in re.finditer(subsequence_pattern(words[0], SEPARATOR), fold):
        end = fold.find(SEPARATOR, match.end())
        yield match.start() + 1, len(fold) if end < 0 else end


class _Scorer:
    """Scores paths of one listing. Paths of the same shape have the same score, so it scores each shape once."""

    def __init__(self, words: Sequence[Word], listing: str) -> None:
        self._words = words
        self._listing = listing
        self._table = shape_table(words)
        # Translating the whole listing at once is fast for ASCII only.
        self._shapes = listing.translate(self._table) if listing.isascii() else None
        self._known: dict[str, int | None] = {}

    def score(self, start: int, end: int) -> int | None:
        shapes = self._shapes
        shape = shapes[start:end] if shapes is not None else self._listing[start:end].translate(self._table)
        if shape not in self._known:
            self._known[shape] = self._score(self._listing[start:end])
        return self._known[shape]

    def _score(self, path: str) -> int | None:
        total = 0
        for word in self._words:
            fold = folded(path, word)
            if not has_in_order(word, fold):
                return None
            total += score(word, path, fold)
        return total


def has_in_order(word: Word, fold: str) -> bool:
    at = 0
    for char in word.text:
        at = fold.find(char, at) + 1
        if not at:
            return False
    return True


def _match(words: Iterable[Word], root: str, points: int, path: str) -> FileMatch:
    indices = {place for word in words for place in positions(word, path, folded(path, word))}
    shown = _UNSHOWABLE.sub("\ufffd", path)
    return FileMatch(root, shown, shown.rpartition("/")[2], points, tuple(sorted(indices)))
