"""What is left to chance in a simulated world. Every choice goes through one object, so the choices are the world.

Each kind of choice has a stream of its own, so that a new kind changes nothing about the others. A seed draws the
choices. Recorded ones replay them, and fewer of them are a simpler world: a choice that is cut falls back to its first
option, which is the plainest one (no fault, no delay, the first task).
"""

import random
import time
from collections.abc import Mapping, Sequence
from typing import TypeVar

T = TypeVar("T")

Choices = Mapping[str, Sequence[int | None]]
"""The index of each choice, by its kind; None and what is missing at the end is the plainest."""


class Draws:
    """The choices of one world."""

    def __init__(self, seed: int, given: Choices | None = None) -> None:
        """With `given`, the recorded choices are made again."""
        self._seed, self._given = seed, given
        self._streams: dict[str, random.Random] = {}
        self.made: dict[str, list[int]] = {}

    def pick(self, kind: str, options: Sequence[T], weights: Sequence[float] | None = None) -> T:
        """Choose one of the options; the first is the plainest. The weights need not sum up to 1."""
        if len(options) == 1:
            return options[0]
        made = self.made.setdefault(kind, [])
        if self._given is not None:
            given = self._given.get(kind, ())
            drawn = given[len(made)] if len(made) < len(given) else None
            index = min(drawn or 0, len(options) - 1)
        else:
            stream = self._streams.get(kind)
            if stream is None:
                stream = self._streams[kind] = random.Random(f"{self._seed} {kind}")
            if weights is None:
                index = int(stream.random() * len(options))
            else:
                index = stream.choices(range(len(options)), weights)[0]
        made.append(index)
        return options[index]

    def chance(self, kind: str, probability: float) -> bool:
        """Draw whether something happens; that it does not is the plain option."""
        if probability <= 0:
            return False
        return self.pick(kind, (False, True), (1 - probability, probability))

    def below(self, kind: str, limit: int) -> int:
        """Draw a number from 0 up to, not including, the limit."""
        return self.pick(kind, range(limit))

    def seconds(self, kind: str, *options: float) -> float:
        """Draw a time; the first option is the plainest."""
        return self.pick(kind, options)


def fresh_seed() -> int:
    """Return the first of ten thousand seeds that nobody has played."""
    return int(time.time()) * 10_000
