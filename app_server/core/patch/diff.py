"""Unified diffs of texts, in git's format. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from app_server.core.patch.line_diff import Change, changes

NO_NEWLINE = "\\ No newline at end of file\n"


def unified_hunks(old: str, new: str, context: int) -> str:
    """The hunks from `old` to `new`, without file headers; empty where nothing changed."""
    a, b = _lines(old), _lines(new)
    return "".join([_hunk(a, b, group, context) for group in _groups(changes(a, b), context)])


def _lines(text: str) -> list[str]:
    """Lines with their ends. Only a newline ends a line, as for git."""
    pieces = text.split("\n")
    lines = [piece + "\n" for piece in pieces[:-1]]
    return [*lines, pieces[-1]] if pieces[-1] else lines


def _groups(found: Sequence[Change], context: int) -> Iterator[list[Change]]:
    """Groups changes whose context lines would touch."""
    group: list[Change] = []
    for change in found:
        if group and change.a_start - group[-1].a_stop > 2 * context:
            yield group
            group = []
        group.append(change)
    if group:
        yield group


def _hunk(a: list[str], b: list[str], group: list[Change], context: int) -> str:
    first, last = group[0], group[-1]
    a_start = max(first.a_start - context, 0)
    b_start = first.b_start - (first.a_start - a_start)
    a_stop = min(last.a_stop + context, len(a))
    b_stop = last.b_stop + (a_stop - last.a_stop)
    pieces = [f"@@ -{_range(a_start, a_stop)} +{_range(b_start, b_stop)} @@\n"]
    at = a_start
    for change in group:
        pieces.extend(_marked(" ", a[at : change.a_start]))
        pieces.extend(_marked("-", a[change.a_start : change.a_stop]))
        pieces.extend(_marked("+", b[change.b_start : change.b_stop]))
        at = change.a_stop
    pieces.extend(_marked(" ", a[at:a_stop]))
    return "".join(pieces)


def _range(start: int, stop: int) -> str:
    length = stop - start
    if length == 1:
        return str(start + 1)
    return f"{start + 1 if length else start},{length}"


def _marked(mark: str, lines: Sequence[str]) -> Iterator[str]:
    for line in lines:
        yield mark + line
        if not line.endswith("\n"):
            yield "\n" + NO_NEWLINE
