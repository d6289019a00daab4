"""Fuzzy file search: finds the files below some folders that match a query while the user types it.

Walking, filtering and scoring run in a worker thread and regularly check for cancellation. A search cancels an earlier
one with the same token.
"""

from __future__ import annotations

import heapq
import os
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from app_server.engine.support.worker_threads import run_in_thread
from app_server.engine.workspace.files import fuzzy
from app_server.engine.workspace.files.fuzzy import FileMatch
from app_server.engine.workspace.files.walk import SEPARATOR, Listing, Tree

LIMIT = 50
"""Maximum number of matches for each root; with `names_count`, for all roots together."""
IN_NAME, WHOLE_NAME = 1 << 16, 1 << 17
"""Added to the score with `names_count`: for a match within the name of a file, and for a match of a whole name."""
MAX_TREES = 8
MAX_QUERY = 512
CHECK_EVERY = 512

Stop = Callable[[], bool]

_UNSHOWABLE = re.compile("[\ud800-\udfff]")


class FileSearch:
    """Searches for all clients of a server; caches the trees of the latest searches."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self._now_ns = now_ns
        self._trees: dict[str, Tree] = {}
        self._walking = threading.Lock()
        self._running: dict[str, threading.Event] = {}
        self._last_fold: tuple[tuple[bool, bool] | None, str, str] = (None, "", "")

    async def search(
        self, query: str, roots: Sequence[str | Path], token: str | None = None, *, names_count: bool = False
    ) -> list[FileMatch]:
        """Return the best matches, best first; none if a later search with the same token replaced this one."""
        stop = threading.Event()
        if token is not None:
            if earlier := self._running.pop(token, None):
                earlier.set()
            self._running[token] = stop
        try:
            find = partial(self.find, names_count=names_count)
            return await run_in_thread(find, query, roots, stop.is_set, abandon_on_cancel=True)
        finally:
            stop.set()
            if token is not None and self._running.get(token) is stop:
                del self._running[token]

    def find(
        self, query: str, roots: Sequence[str | Path], stop: Stop, *, names_count: bool = False
    ) -> list[FileMatch]:
        """Search synchronously. Files are ranked as in codex 0.58. With `names_count`, files and folders are ranked as
        in codex 0.169: a match in a name comes before a match in the folders above it.
        """
        words = fuzzy.parse_query(query[:MAX_QUERY], smart_case=not names_count)
        if not words:
            return []
        matches: list[FileMatch] = []
        for root in roots:
            listing = self._listing(root, stop)
            if listing is None:
                return []
            scorers = [_Scorer(words, listing.files, fuzzy.TEXTS)]
            if names_count:
                scorers = [
                    _NameScorer(words, listing.files),
                    _NameScorer(words, listing.folders, is_folder=True),
                ]
            for scorer in scorers:
                fold = fuzzy.folded if scorer.is_folder else self._folded
                found = _best(scorer, fold(scorer.listing, words[0]), stop)
                if found is None:
                    return []
                matches += [_match(scorer, str(root), points, path) for points, path in found]
        matches.sort(key=lambda match: (-match.score, match.path))
        return matches[:LIMIT] if names_count else matches

    def _listing(self, root: str | Path, stop: Stop) -> Listing | None:
        with self._walking:
            return self._tree(os.path.abspath(root)).listing(stop)

    def _folded(self, listing: str, word: fuzzy.Word) -> str:
        """Return a folded listing. The last result is cached, because folding is slow if the listing is not ASCII."""
        kind = (word.cased, word.accented)
        last_kind, last_listing, fold = self._last_fold
        if last_kind != kind or last_listing != listing:
            fold = fuzzy.folded(listing, word)
            self._last_fold = (kind, listing, fold)
        return fold

    def _tree(self, root: str) -> Tree:
        tree = self._trees.pop(root, None) or Tree(root.rstrip("/") + "/", self._now_ns)
        self._trees[root] = tree
        while len(self._trees) > MAX_TREES:
            del self._trees[next(iter(self._trees))]
        return tree


def _best(scorer: _Scorer, fold: str, stop: Stop) -> list[tuple[int, str]] | None:
    """Return the best paths of a listing with their scores; None if the search was stopped."""
    found: list[tuple[int, str]] = []
    listing = scorer.listing
    for number, (start, end) in enumerate(_candidates(scorer.words, fold)):
        if number % CHECK_EVERY == 0 and stop():
            return None
        points = scorer.score(start, end)
        if points is not None:
            found.append((-points, listing[start:end]))
    return [(-points, path) for points, path in heapq.nsmallest(LIMIT, found)]


def _candidates(words: Sequence[fuzzy.Word], fold: str) -> Iterator[tuple[int, int]]:
    """Yield the ranges of the listing's paths that contain the first word's characters in order."""
    for match in re.finditer(fuzzy.subsequence_pattern(words[0], SEPARATOR), fold):
        end = fold.find(SEPARATOR, match.end())
        yield match.start() + 1, len(fold) if end < 0 else end


class _Scorer:
    """Scores paths of one listing. Paths of the same shape have the same score, so it scores each shape once."""

    def __init__(
        self, words: Sequence[fuzzy.Word], listing: str, scale: fuzzy.Scale, *, is_folder: bool = False
    ) -> None:
        self.words = words
        self.listing = listing
        self.scale = scale
        self.is_folder = is_folder
        self._table = fuzzy.shape_table(words, scale)
        # Translating the whole listing at once is fast only for ASCII.
        self._shapes = listing.translate(self._table) if listing.isascii() else None
        self._known: dict[str, int | None] = {}

    def score(self, start: int, end: int) -> int | None:
        shapes = self._shapes
        shape = shapes[start:end] if shapes is not None else self.listing[start:end].translate(self._table)
        if shape not in self._known:
            self._known[shape] = self._score(self.listing[start:end])
        return self._known[shape]

    def _score(self, path: str) -> int | None:
        total = 0
        for word in self.words:
            fold = fuzzy.folded(path, word)
            if not has_in_order(word, fold):
                return None
            total += fuzzy.score(word, path, fold, self.scale)
        return total


class _NameScorer(_Scorer):
    """Scores paths with a bonus if a single word is found in the name of a file, or is a whole name."""

    def __init__(self, words: Sequence[fuzzy.Word], listing: str, *, is_folder: bool = False) -> None:
        super().__init__(words, listing, fuzzy.PATHS, is_folder=is_folder)

    def _score(self, path: str) -> int | None:
        if len(self.words) > 1:
            return super()._score(path)
        (word,) = self.words
        name = path[path.rfind("/") + 1 :]
        fold = fuzzy.folded(name, word)
        whole = WHOLE_NAME if fold == word.text else 0
        if not self.is_folder and has_in_order(word, fold):
            return fuzzy.score(word, name, fold, fuzzy.PATHS) + IN_NAME + whole
        points = super()._score(path)
        return None if points is None else points + whole


def has_in_order(word: fuzzy.Word, fold: str) -> bool:
    at = 0
    for char in word.text:
        at = fold.find(char, at) + 1
        if not at:
            return False
    return True


def _match(scorer: _Scorer, root: str, points: int, path: str) -> FileMatch:
    in_name = isinstance(scorer, _NameScorer) and not scorer.is_folder and points >= IN_NAME
    skipped = path.rfind("/") + 1 if in_name else 0
    part = path[skipped:]
    found = {
        place
        for word in scorer.words
        for place in fuzzy.positions(word, part, fuzzy.folded(part, word), scorer.scale)
    }
    shown = _UNSHOWABLE.sub("\ufffd", path)
    indices = tuple(skipped + place for place in sorted(found))
    return FileMatch(root, shown, shown.rpartition("/")[2], points, indices, scorer.is_folder)
