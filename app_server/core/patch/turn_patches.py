"""The patches of a turn, and the diff of all of them so far. What makes it is loaded with the first patch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from app_server.core.lazy import Lazy

if TYPE_CHECKING:
    from app_server.core.patch.patch_plan import PatchPlan

TurnDiff = Callable[[Sequence["PatchPlan"], str | None, str | None], str | None]

_TURN_DIFF: Lazy[TurnDiff] = Lazy(lambda: import_module("app_server.core.patch.changes").turn_diff)


class TurnDiffTracker:
    """One per turn. Call `record` before a patch is written."""

    def __init__(self, home: str | None = None, base: str | None = None) -> None:
        """`home` and `base` as in `changes.turn_diff`."""
        self._home, self._base = home, base
        self._plans: list[PatchPlan] = []

    @property
    def touched(self) -> bool:
        """Whether any patch was recorded; without one there is no diff to compute."""
        return bool(self._plans)

    def record(self, plan: PatchPlan) -> None:
        """Note a patch that is about to be written."""
        self._plans.append(plan)

    def unified_diff(self) -> str | None:
        """Compare the files of all patches with the disk; None where nothing differs. Blocks while it reads."""
        return _TURN_DIFF.get()(self._plans, self._home, self._base) if self._plans else None
