"""The models that clients offer to the user, in order.

The first one is the default. Other names work too; `families` contains the properties of models by name.
"""

from __future__ import annotations

from collections.abc import Mapping

from protocol.policy import ReasoningEffort
from protocol.records import dataclass


@dataclass(frozen=True, slots=True)
class KnownModel:
    name: str
    description: str
    efforts: tuple[ReasoningEffort, ...]
    default_effort: ReasoningEffort = ReasoningEffort.MEDIUM


_MEDIUM_UP = (ReasoningEffort.MEDIUM, ReasoningEffort.HIGH)
_LOW_UP = (ReasoningEffort.LOW, *_MEDIUM_UP)

KNOWN_MODELS: tuple[KnownModel, ...] = (
    KnownModel("gpt-5.1-codex", "Made for work on code: changes, reviews, long tasks.", _LOW_UP),
    KnownModel("gpt-5.1-codex-mini", "Made for work on code; smaller, quicker and cheaper.", _MEDIUM_UP),
    KnownModel("gpt-5.1", "For all kinds of questions, with wide general knowledge.", _LOW_UP),
)

EFFORT_WORDS: Mapping[ReasoningEffort, str] = {
    ReasoningEffort.NONE: "Answers without thinking first",
    ReasoningEffort.MINIMAL: "Thinks as little as possible",
    ReasoningEffort.LOW: "Thinks briefly; quick, for plain tasks",
    ReasoningEffort.MEDIUM: "Thinks as much as the task seems to need",
    ReasoningEffort.HIGH: "Thinks for long; for hard or unclear tasks",
}
