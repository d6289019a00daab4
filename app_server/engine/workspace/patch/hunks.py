"""Applies the hunks of one file to its text. Pure; raises `PatchError` if a hunk does not match.

Hunks are in the order of the file and do not overlap: the search for each one starts below the previous one. The search
has four levels, each less strict than the one before:

1. exact;
2. without trailing whitespace;
3. without whitespace on either side;
4. with typographic dashes, quotes and spaces replaced by plain ones.

Each level searches the whole file before the next one starts, and the first match counts. Lines that must be at the end
are searched only there.

Context lines keep the file's own bytes, even if they matched only loosely, and so do all other lines that are not
replaced: a file may have another encoding than UTF-8. An added line gets the line end of the line that it replaces,
else of its neighbour, and always has one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from app_server.engine.support.light_dataclasses import dataclass
from app_server.engine.workspace.patch.parse import Hunk, HunkLine, PatchError

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
        """Return the index of the first line of `wanted` at or after `start`; None if there is no match."""
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


BOM = "\ufeff"
ANY_BYTES = "surrogateescape"
"""Error handler by which bytes that are not UTF-8 pass through a text unchanged."""


class Line(NamedTuple):
    text: str
    end: str
    """Line end: "\\n", "\\r\\n", or "" for a last line without a line end."""


@dataclass(frozen=True, slots=True)
class FileText:
    lines: tuple[Line, ...]
    bom: bool = False

    def encode(self) -> bytes:
        body = "".join([line.text + line.end for line in self.lines])
        return (BOM + body if self.bom else body).encode("utf-8", ANY_BYTES)


def decode(content: bytes) -> FileText:
    text = content.decode("utf-8", ANY_BYTES)
    bom = text.startswith(BOM)
    pieces = text.removeprefix(BOM).split("\n")
    lines = [_ended(piece) for piece in pieces[:-1]]
    if pieces[-1]:
        lines.append(Line(pieces[-1], ""))
    return FileText(tuple(lines), bom)


def _ended(piece: str) -> Line:
    return Line(piece[:-1], "\r\n") if piece.endswith("\r") else Line(piece, "\n")


@dataclass(frozen=True, slots=True)
class _Splice:
    start: int
    stop: int
    lines: tuple[HunkLine, ...]


def apply_hunks(text: FileText, hunks: Sequence[Hunk], path: str) -> FileText:
    """Apply the hunks of one file to its text. `path` is used only in messages."""
    haystack = Haystack([line.text for line in text.lines])
    splices: list[_Splice] = []
    below = 0
    for hunk in hunks:
        below = _below_headers(haystack, hunk, below, path)
        splice = _locate(haystack, hunk, below, path)
        splices.append(splice)
        if splice.stop > splice.start:
            below = splice.stop
    # Only pure additions can be out of order: they all go to the end of the file, in the order of the patch.
    splices.sort(key=lambda splice: splice.start)
    return FileText(_spliced(text.lines, splices), text.bom)


def _below_headers(haystack: Haystack, hunk: Hunk, below: int, path: str) -> int:
    for header in hunk.headers:
        found = haystack.find([header], below)
        if found is None:
            raise PatchError(f"Failed to find context '{header}' in {path}")
        below = found + 1
    return below


def _locate(haystack: Haystack, hunk: Hunk, below: int, path: str) -> _Splice:
    end = len(haystack)
    old = [line.text for line in hunk.lines if line.mark != "+"]
    if not old:
        return _Splice(end, end, hunk.lines)
    found = haystack.find(old, below, at_end=hunk.at_end)
    if found is not None:
        return _Splice(found, found + len(old), hunk.lines)
    # An empty line before the next header often belongs to the patch's layout and not to the file.
    if old == [""] and len(hunk.lines) > 1 and hunk.lines[-1].mark == " ":
        return _Splice(end, end, hunk.lines[:-1])
    if old[-1] == "" and len(old) > 1:
        found = haystack.find(old[:-1], below, at_end=hunk.at_end)
        if found is not None:
            return _Splice(found, found + len(old) - 1, _without_last_blank(hunk.lines))
    raise PatchError("\n".join((f"Failed to find expected lines in {path}:", *old)))


def _without_last_blank(lines: tuple[HunkLine, ...]) -> tuple[HunkLine, ...]:
    """Return the lines of a hunk without the last old line. If that line was blank, it is not added again either."""
    last = max(n for n, line in enumerate(lines) if line.mark != "+")
    kept = lines[:last] + lines[last + 1 :]
    if lines[last].mark == "-" and kept and kept[-1] == HunkLine("+", ""):
        kept = kept[:-1]
    return kept


def _spliced(lines: Sequence[Line], splices: Sequence[_Splice]) -> tuple[Line, ...]:
    result: list[Line] = []
    done = 0
    for splice in splices:
        result.extend(lines[done : splice.start])
        _write(result, lines, splice)
        done = splice.stop
    result.extend(lines[done:])
    for n in range(len(result) - 1):
        if not result[n].end:
            result[n] = Line(result[n].text, _near_end(lines, n))
    return tuple(result)


def _write(result: list[Line], lines: Sequence[Line], splice: _Splice) -> None:
    """Append the hunk's replacement for `lines[start:stop]`."""
    at = splice.start
    replaced: list[str] = []
    for line in splice.lines:
        match line.mark:
            case " ":
                result.append(lines[at])
                at += 1
                replaced = []
            case "-":
                replaced.append(lines[at].end)
                at += 1
            case "+":
                end = replaced.pop(0) if replaced else ""
                result.append(
                    Line(line.text, end or (result[-1].end if result else "") or _near_end(lines, at))
                )


def _near_end(lines: Sequence[Line], at: int) -> str:
    for n in (at - 1, at, 0):
        if 0 <= n < len(lines) and lines[n].end:
            return lines[n].end
    return "\n"
