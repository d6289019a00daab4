"""Merges texts line by line: takes the agent's part out of a file that the user has changed, too. Pure.

A merge is clean if no change touches another. Anything else has no result: the file is then kept as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from app_server.engine.workspace.patch.diff import Change, changes

MAX_BYTES = 1024 * 1024
"""Maximum size of a text that is merged, in bytes."""


def without_agents_part(base: bytes, edits: Iterable[tuple[bytes, bytes]]) -> bytes | None:
    """Return the base with the user's edits, each a text before and after; None if they do not apply cleanly."""
    result = base
    for before, after in edits:
        merged = merge(before, result, after)
        if merged is None:
            return None
        result = merged
    return result


def merge(base: bytes, ours: bytes, theirs: bytes) -> bytes | None:
    """Return a text with both changes from `base`; None if they touch, or if a text is not plain or too long."""
    if ours in (base, theirs):
        return theirs
    if theirs == base:
        return ours
    if any(b"\0" in text or len(text) > MAX_BYTES for text in (base, ours, theirs)):
        return None
    old, first, second = (_lines(text) for text in (base, ours, theirs))
    return _combined(old, (first, changes(old, first)), (second, changes(old, second)))


def _combined(
    old: Sequence[str],
    ours: tuple[Sequence[str], Sequence[Change]],
    theirs: tuple[Sequence[str], Sequence[Change]],
) -> bytes | None:
    steps = sorted(
        [(change.a_start, change.a_stop, ours[0][change.b_start : change.b_stop]) for change in ours[1]]
        + [
            (change.a_start, change.a_stop, theirs[0][change.b_start : change.b_stop]) for change in theirs[1]
        ],
        key=lambda step: step[:2],
    )
    merged: list[str] = []
    at = -1
    for start, stop, lines in steps:
        if start <= at:
            return None
        merged += old[max(at, 0) : start]
        merged += lines
        at = stop
    merged += old[max(at, 0) :]
    return "".join(merged).encode("latin-1")


def _lines(text: bytes) -> list[str]:
    """Return the lines with their ends. Latin-1 keeps every byte, whatever the encoding is."""
    pieces = text.decode("latin-1").split("\n")
    return [*(piece + "\n" for piece in pieces[:-1]), *([pieces[-1]] if pieces[-1] else [])]
