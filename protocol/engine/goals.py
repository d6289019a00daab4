"""What a thread works for by itself: the goal, where it stands, and what it has used."""

from __future__ import annotations

from enum import StrEnum

from protocol.records import dataclass


class GoalStatus(StrEnum):
    ACTIVE = "active"
    """Turns are begun for it whenever nothing else runs."""
    PAUSED = "paused"
    BLOCKED = "blocked"
    """It cannot go on without the user: the model says so, or its turn failed."""
    USAGE_LIMITED = "usage_limited"
    """The provider's limit for the account is reached."""
    BUDGET_LIMITED = "budget_limited"
    COMPLETE = "complete"


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    objective: str
    status: GoalStatus = GoalStatus.ACTIVE
    token_budget: int | None = None
    tokens_used: int = 0
    seconds_used: float = 0.0
    created_at: int
    """Seconds since 1970, as `updated_at`."""
    updated_at: int

    @property
    def is_spent(self) -> bool:
        return self.token_budget is not None and self.tokens_used >= self.token_budget

    @property
    def tokens_left(self) -> int | None:
        """None: without a bound."""
        return None if self.token_budget is None else max(self.token_budget - self.tokens_used, 0)
