"""Shrinking: of the choices of a world that fails, the fewest that still fail in the same way."""

import re
from collections.abc import Callable, Sequence

from tests.simulation.world import Outcome, play

Given = list[int | None]

NAMES = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|\b(?:msg|call|rs)-\d+|\b[wm]\d+\b|\d+")
"""What differs between two worlds that fail in the same way."""


def kind_of(problem: str) -> str:
    """Return a problem without the names in it."""
    return NAMES.sub("*", problem.splitlines()[0])[:80]


def shrink(
    seed: int, outcome: Outcome, *, tell: Callable[[str], None], rounds: int = 400
) -> tuple[Given, Outcome]:
    """Return choices that fail as `outcome` did, and what becomes of them. A choice that is cut is made as plainly as
    possible: blocks are cut first, halves of what is left, then smaller ones. Plays at most so many worlds.
    """
    wanted = {kind_of(problem) for problem in outcome.problems}
    best: Given = list(outcome.made)
    last = outcome
    size, played = max(len(best) // 2, 1), 0
    while played < rounds:
        at, cut_any = 0, False
        while at < len(best) and played < rounds:
            candidate = best[:at] + [None] * min(size, len(best) - at) + best[at + size :]
            if candidate != best:
                played += 1
                tried = play(seed, _trimmed(candidate))
                if wanted & {kind_of(problem) for problem in tried.problems}:
                    best, last, cut_any = _trimmed(candidate), tried, True
                    tell(f"{sum(each is not None for each in best)} of {len(outcome.made)} choices")
            at += size
        if size == 1 and not cut_any:
            break
        size = max(size // 2, 1) if not cut_any or size > 1 else 1
    return best, last


def _trimmed(given: Sequence[int | None]) -> Given:
    """Return the choices without plain ones at the end."""
    end = len(given)
    while end and given[end - 1] in (None, 0):
        end -= 1
    return [each or None for each in given[:end]]
