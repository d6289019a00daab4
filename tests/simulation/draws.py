"""What is left to chance in a simulated world. Every choice goes through one object, so a list of choices is a world.

A seed draws the choices. A recorded list replays them, and a shorter list is a simpler world: a choice that is cut
falls back to its first option, which is the plainest one (no fault, no delay, the first task).
"""

import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

MASK = (1 << 64) - 1


class Draws:
    """The choices of one world, in order."""

    def __init__(self, seed: int, given: Sequence[int | None] | None = None) -> None:
        """With `given`, the recorded choices are made again: an index, or None for the plainest option. Behind its end
        every choice is the plainest.
        """
        self._random = random.Random(seed)
        self._given = given
        self.made: list[int] = []
        """The index of each choice."""
        self.kinds: list[str] = []
        """What each choice was about."""

    def pick(self, kind: str, options: Sequence[T], weights: Sequence[float] | None = None) -> T:
        """Choose one of the options; the first is the plainest. The weights need not sum up to 1."""
        if len(options) == 1:
            return options[0]
        if self._given is None:
            if weights is None:
                index = int(self._random.random() * len(options))
            else:
                index = self._random.choices(range(len(options)), weights)[0]
        else:
            at = len(self.made)
            drawn = self._given[at] if at < len(self._given) else None
            index = 0 if drawn is None else min(drawn, len(options) - 1)
        self.made.append(index)
        self.kinds.append(kind)
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

    def fork(self, kind: str) -> "random.Random":
        """Return a generator of its own for data in bulk, such as ids, of which no single choice matters."""
        return random.Random(self._random.getrandbits(64) if self._given is None else hash_of(kind))


def hash_of(text: str) -> int:
    """Return a number for the text that does not depend on PYTHONHASHSEED."""
    value = 1469598103934665603
    for byte in text.encode():
        value = (value ^ byte) * 1099511628211 & MASK
    return value
