"""In place of a rollout's writer, for conversations that are not stored."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from protocol.responses import ResponseItem
from protocol.rollout import RolloutItem


class NoRollout:
    """Keeps nothing, and never has a problem."""

    path = None
    problem = None

    def append(self, items: Iterable[RolloutItem]) -> None:
        pass

    def write_journal(self, items: Sequence[ResponseItem]) -> None:
        pass

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass
