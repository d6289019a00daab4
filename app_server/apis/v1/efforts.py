"""Reasoning efforts in the words of this API, which has a closed list of them. Pure."""

from __future__ import annotations

from typing import Final

from protocol.policy import ReasoningEffort

_BEYOND_HIGH: Final = frozenset({"xhigh", "max", "ultra"})


def nearest_effort(word: str | None) -> ReasoningEffort | None:
    """The nearest one on the list; None where the word says nothing of that."""
    if word in _BEYOND_HIGH:
        return ReasoningEffort.HIGH
    return next((each for each in ReasoningEffort if each.value == word), None)
