"""Shrinking: finds the fewest choices of a failing world that still fail in the same way."""

import re
from collections.abc import Callable, Sequence

from tests.simulation.draws import Choices
from tests.simulation.world import Outcome, play

NAMES = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|\b(?:msg|call|rs)-\d+|\b[wm]\d+\b|\d+")
"""Pattern of the names that differ between two worlds that fail in the same way."""


def kind_of(problem: str) -> str:
    """Return a problem without the names in it."""
    return NAMES.sub("*", problem.splitlines()[0])[:80]


def shrink(
    seed: int, outcome: Outcome, *, tell: Callable[[str], None], rounds: int = 400
) -> tuple[Choices, Outcome]:
    """Return fewer choices that fail as `outcome` did, and their outcome. A choice that is cut falls back to the
    plainest option. Blocks are cut first: halves of the remaining choices, then smaller ones. At most `rounds` worlds
    are played.
    """
    wanted = {kind_of(problem) for problem in outcome.problems}
    best, last = _risky(outcome.made), outcome
    begun, played = len(best), 0
    size = max(begun // 2, 1)
    while played < rounds and best:
        at, cut_any = 0, False
        while at < len(best) and played < rounds:
            candidate = best[:at] + best[at + size :]
            played += 1
            tried = play(seed, _choices(candidate))
            if wanted & {kind_of(problem) for problem in tried.problems}:
                best, last, cut_any = candidate, tried, True
                tell(f"{len(best)} of {begun} choices")
            else:
                at += size
        if size == 1 and not cut_any:
            break
        size = max(size // 2, 1)
    return _choices(best), last


Choice = tuple[str, int, int]
"""Kind of a choice, its number among those of its kind, and the chosen index."""


def _risky(made: Choices) -> list[Choice]:
    """List the choices that are not the plainest."""
    return [(kind, at, index) for kind, each in made.items() for at, index in enumerate(each) if index]


def _choices(kept: Sequence[Choice]) -> Choices:
    found: dict[str, list[int | None]] = {}
    for kind, at, index in kept:
        each = found.setdefault(kind, [])
        each += [None] * (at - len(each)) + [index]
    return found
