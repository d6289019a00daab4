"""A handler's result together with what follows it, for handlers whose effect must not overtake their answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from protocol.base import WireModel
from protocol.records import dataclass


@dataclass(frozen=True, slots=True)
class Answer:
    result: WireModel
    then: Callable[[], Awaitable[None]]
    """Runs once the answer is on its way, before the next request of the same conversation."""
