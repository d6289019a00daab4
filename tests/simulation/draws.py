"""Random choices of a simulated world. Every choice goes through one object, so the choices are the world.

Each kind of choice has a stream of its own, so that a new kind does not change the others. A seed draws the choices.
Recorded choices replay them, and fewer of them are a simpler world: a choice that is cut falls back to its first
option, which is the plainest one (no fault, no delay, the first task).
"""

import bisect
import itertools
import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

T = TypeVar("T")

Choices = Mapping[str, Sequence[int | None]]
"""Index of each choice, by its kind. None, or no entry at the end, is the plainest option."""


class Draws:
    """The choices of one world."""

    def __init__(self, seed: int, given: Choices | None = None) -> None:
        """Draw by this seed. If `given` is set, the recorded choices are made again."""
        self._seed, self._given = seed, given
        self._drawn: dict[str, tuple[list[int], Callable[[], float]]] = {}
        """Choices that were made, and the random stream for the next ones, by kind."""

    @property
    def made(self) -> dict[str, list[int]]:
        return {kind: choices for kind, (choices, _) in self._drawn.items()}

    def pick(self, kind: str, options: Sequence[T], weights: Sequence[float] | None = None) -> T:
        """Choose one of the options; the first is the plainest. The weights need not add up to 1."""
        return options[self._index(kind, len(options), weights)]

    def chance(self, kind: str, probability: float) -> bool:
        """Draw whether something happens. The plain option is that it does not."""
        return probability > 0 and self._index(kind, 2, (1 - probability, probability)) == 1

    def below(self, kind: str, limit: int) -> int:
        """Draw a number from 0 up to, but not including, the limit."""
        return self._index(kind, limit, None)

    def _index(self, kind: str, count: int, weights: Sequence[float] | None) -> int:
        if count == 1:
            return 0
        drawn = self._drawn.get(kind)
        if drawn is None:
            drawn = self._drawn[kind] = [], random.Random(f"{self._seed} {kind}").random
        made, number = drawn
        if self._given is not None:
            given = self._given.get(kind, ())
            chosen = given[len(made)] if len(made) < len(given) else None
            index = min(chosen or 0, count - 1)
        elif weights is None:
            index = int(number() * count)
        else:
            bounds = [*itertools.accumulate(weights)]
            index = bisect.bisect(bounds, number() * bounds[-1], 0, count - 1)
        made.append(index)
        return index

    def seconds(self, kind: str, *options: float) -> float:
        """Draw a time in seconds; the first option is the plainest."""
        return self.pick(kind, options)


def fresh_seed() -> int:
    """Return the first of ten thousand random seeds that have not been played."""
    return int(time.time()) * 10_000
