"""Scores how well a typed word matches a path, and finds the matching characters. Pure.

The word's characters must occur in order. Consecutive characters score higher than scattered ones, and so does a match
at the start of a path, of a component, of a word or of a camel-case hump. The score is that of the best placement. As
in fzf, dynamic programming finds it: one row per character of the word, one cell per occurrence of that character in
the path.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from msgspec import Struct

MATCH = 16
GAP_START = 3
GAP_EXTENSION = 1
CONSECUTIVE = 4
BOUNDARY = 8
HUMP = 5
FIRST_FACTOR = 2

_WHITE, _NON_WORD, _DELIMITER, _LOWER, _UPPER, _LETTER, _DIGIT = range(7)
_SPLIT = re.compile(r"(?:\\.|\S)+", re.DOTALL)


class FileMatch(Struct, frozen=True):
    """A match: its path, its score, and the indices of the matching characters."""

    root: str
    path: str
    file_name: str
    score: int
    indices: tuple[int, ...]
    is_folder: bool = False


class Word(Struct, frozen=True):
    """One word of a query. `text` is case-folded unless it has a capital; then case must match."""

    text: str
    cased: bool
    accented: bool


class Scale:
    """Bonuses of a match at a boundary: after white space, and after a delimiter. At any other boundary it is
    BOUNDARY.
    """

    def __init__(self, white: int, delimiter: int, delimiters: str, start: int) -> None:
        """Set the bonuses. `start` is the character class that counts as the one before the first character."""
        self.start = start
        self.boundaries = (white, BOUNDARY, delimiter)
        self._delimiters = frozenset(delimiters)
        self.ascii_classes = [self._make_class(chr(code)) for code in range(128)]

    def class_of(self, char: str) -> int:
        code = ord(char)
        return self.ascii_classes[code] if code < 128 else self._make_class(char)

    def _make_class(self, char: str) -> int:
        if char.islower():
            return _LOWER
        if char.isupper():
            return _UPPER
        if char.isnumeric():
            return _DIGIT
        if char.isalpha():
            return _LETTER
        if char.isspace():
            return _WHITE
        return _DELIMITER if char in self._delimiters else _NON_WORD


TEXTS = Scale(white=10, delimiter=9, delimiters="/,:;|", start=_WHITE)
"""Scale of codex 0.58: the beginning of a path has the highest bonus."""
PATHS = Scale(white=8, delimiter=9, delimiters="/", start=_DELIMITER)
"""Scale of codex 0.169: the beginning of any component has the same bonus."""


def parse_query(query: str, *, smart_case: bool = True) -> tuple[Word, ...]:
    """Return the words of a query, which are separated by white space; a backslash escapes a space. With `smart_case`,
    a word with a capital is not folded.
    """
    return tuple(_word(found.replace("\\ ", " "), smart_case) for found in _SPLIT.findall(query))


def _word(text: str, smart_case: bool) -> Word:
    cased = smart_case and any(c.isupper() for c in text)
    return Word(text if cased else text.lower(), cased=cased, accented=not text.isascii())


def folded(text: str, word: Word) -> str:
    """Return `text`, folded for the search of that word, with the same number of characters."""
    if text.isascii():
        return text if word.cased else text.lower()
    return text.translate(_FOLDS[word.cased, word.accented])


class _Fold(dict[int, int]):
    """Maps each character to one character: without its accent and in lower case, where requested."""

    def __init__(self, cased: bool, accented: bool) -> None:
        super().__init__()
        self._cased = cased
        self._accented = accented

    def __missing__(self, code: int) -> int:
        char = chr(code)
        if not self._accented:
            char = unicodedata.normalize("NFD", char)[0]
        if not self._cased and len(char.lower()) == 1:
            char = char.lower()
        self[code] = ord(char)
        return ord(char)


_FOLDS = {(c, a): _Fold(c, a) for c in (False, True) for a in (False, True)}


def subsequence_pattern(word: Word, separator: str) -> str:
    """Return a regular expression that finds folded paths, each preceded by a separator, with the word's characters in
    order.
    """
    end = re.escape(separator)
    parts = (f"[^{re.escape(char)}{end}]*+{re.escape(char)}" for char in word.text)
    return end + "".join(parts)


def shape_table(words: Sequence[Word], scale: Scale = TEXTS) -> dict[int, int]:
    """Return a table that translates ASCII paths into shapes: each character that occurs in no word becomes a stand-in
    for its class.

    Two paths of the same shape have the same score, which depends only on classes and the words' characters.
    """
    kept = {char for word in words for char in word.text + word.text.lower() + word.text.upper()}
    return {
        code: _STAND_INS[kind]
        for code, kind in enumerate(scale.ascii_classes)
        if code and chr(code) not in kept
    }


def score(word: Word, path: str, fold: str, scale: Scale = TEXTS) -> int:
    """Return the score of the word. `fold` is the folded path, which must contain the word's characters in order."""
    return max(cell[1] for cell in _last_row(word.text, path, fold, scale, None))


def positions(word: Word, path: str, fold: str, scale: Scale = TEXTS) -> list[int]:
    """Return the indices of the path's characters in the best placement."""
    back: list[dict[int, int]] = []
    row = _last_row(word.text, path, fold, scale, back)
    best = max(cell[1] for cell in row)
    ends = [place for place, value, _ in row if value == best]
    # Among equal scores, a single character matches the first place, a longer word the last.
    place = ends[0] if len(word.text) == 1 else ends[-1]
    found = [place]
    for before in reversed(back):
        place = before[place]
        found.append(place)
    return found[::-1]


Row = list[tuple[int, int, int]]
"""The cells of one character of the word, in path order. Each has the index of the character in the path, the best
score of a placement that ends there, and the bonus that a directly following match inherits.
"""


def _last_row(text: str, path: str, fold: str, scale: Scale, back: list[dict[int, int]] | None) -> Row:
    places = _places(text, fold)
    row: Row = []
    for place in places[0]:
        bonus = _bonus(path, place, scale)
        row.append((place, bonus * FIRST_FACTOR + MATCH, bonus))
    for following in places[1:]:
        origins: dict[int, int] = {}
        row = _next_row(row, following, path, scale, origins)
        if back is not None:
            back.append(origins)
    return row


def _places(text: str, fold: str) -> list[list[int]]:
    """Return, for each character of the word, its occurrences that leave room for the characters before and after
    it.
    """
    first: list[int] = []
    at = -1
    for char in text:
        at = fold.index(char, at + 1)
        first.append(at)
    end = len(fold)
    places: list[list[int]] = []
    for char, start in zip(reversed(text), reversed(first), strict=True):
        end = fold.rindex(char, start, end)
        found = []
        at = fold.find(char, start, end + 1)
        while at >= 0:
            found.append(at)
            at = fold.find(char, at + 1, end + 1)
        places.append(found)
    return places[::-1]


def _next_row(row: Row, places: Sequence[int], path: str, scale: Scale, origins: dict[int, int]) -> Row:
    """Return the row of the next character, from the row of the previous one; `origins` receives each cell's
    predecessor.

    A cell continues either from the neighbour at `place - 1` (a run: no penalty, and it keeps the bonus with which the
    run started) or from any earlier cell across a gap. A gap of n characters costs GAP_START + (n - 1) * GAP_EXTENSION,
    with an extension of one per character. So the best start of a gap is the cell with the largest score + place, which
    does not depend on where the gap ends: one pass over both rows suffices. A gap never lowers the score below zero,
    and on equal scores the gap wins.
    """
    out: Row = []
    index = 0
    # `best` is the largest score + place of all cells that a gap may start from, `origin` the place of that cell.
    best = origin = -1
    neighbour: tuple[int, int, int] | None = None
    for place in places:
        while index < len(row) and row[index][0] < place:
            neighbour = row[index]
            if neighbour[0] < place - 1 and neighbour[0] + neighbour[1] > best:
                best, origin = neighbour[0] + neighbour[1], neighbour[0]
            index += 1
        bonus = _bonus(path, place, scale)
        skip = max(best - place - GAP_START + GAP_EXTENSION * 2, 0) + bonus if origin >= 0 else -1
        if neighbour is not None and neighbour[0] == place - 1:
            inherited = max(neighbour[2], CONSECUTIVE)
            if bonus >= BOUNDARY:
                inherited = max(inherited, bonus)
            joined = neighbour[1] + max(inherited, bonus)
            if joined > skip:
                out.append((place, joined + MATCH, inherited))
                origins[place] = neighbour[0]
            else:
                out.append((place, skip + MATCH, bonus))
                origins[place] = origin
            if neighbour[0] + neighbour[1] > best:
                best, origin = neighbour[0] + neighbour[1], neighbour[0]
        elif origin >= 0:
            out.append((place, skip + MATCH, bonus))
            origins[place] = origin
    return out


def _bonus(path: str, place: int, scale: Scale) -> int:
    before = scale.class_of(path[place - 1]) if place else scale.start
    here = scale.class_of(path[place])
    if here > _NON_WORD and before <= _DELIMITER:
        return scale.boundaries[before]
    if (before == _LOWER and here == _UPPER) or (before != _DIGIT and here == _DIGIT):
        return HUMP
    return (scale.boundaries[_WHITE], BOUNDARY, 0)[min(here, _DELIMITER)]


_STAND_INS = [ord("\x10") + kind for kind in range(7)]
"""Stand-ins for the classes: control characters, which hardly any path contains. A path that contains one gets the
score of another path of its shape.
"""
