"""Applies the hunks of one file to its text. Pure; raises `PatchError` where a hunk does not match.

Hunks are in the order of the file and do not overlap: the search for each starts below the previous one. Context lines
keep the file's own bytes, even where they matched only loosely. An added line takes the line end of the line that it
replaces, else of its neighbour, and always has one.
"""

from __future__ import annotations

from collections.abc import Sequence

from app_server.core.patch.parse import Hunk, HunkLine
from app_server.core.patch.patch_error import PatchError
from app_server.core.patch.seek import Haystack
from app_server.core.patch.text import FileText, Line
from protocol.records import dataclass


@dataclass(frozen=True, slots=True)
class _Splice:
    start: int
    stop: int
    lines: tuple[HunkLine, ...]


def apply_hunks(text: FileText, hunks: Sequence[Hunk], path: str) -> FileText:
    """`path` is for the messages only."""
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
    # An empty line before the next header is as often part of the patch's layout as of the file.
    if old == [""] and len(hunk.lines) > 1 and hunk.lines[-1].mark == " ":
        return _Splice(end, end, hunk.lines[:-1])
    if old[-1] == "" and len(old) > 1:
        found = haystack.find(old[:-1], below, at_end=hunk.at_end)
        if found is not None:
            return _Splice(found, found + len(old) - 1, _without_last_blank(hunk.lines))
    raise PatchError("\n".join((f"Failed to find expected lines in {path}:", *old)))


def _without_last_blank(lines: tuple[HunkLine, ...]) -> tuple[HunkLine, ...]:
    """The hunk without its last old line; if that was blank, it is not added again either."""
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
