"""The goal of one conversation: who may change it and how, its usage, whether a turn begins for it, and the messages
about it for the model. Pure.

Turns begin only after the user asked for work in this process, by a turn or by setting the goal, and no longer after
the user interrupted one: a conversation that is resumed with an active goal waits for the user.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec
from msgspec import Struct

from app_server.engine.context.environment_context import user_text
from app_server.engine.support.engine_errors import CoreError
from app_server_protocol.engine.errors import ErrorClass
from app_server_protocol.engine.events import Goal, GoalStatus
from app_server_protocol.engine.token_usage import TokenUsage
from app_server_protocol.responses import MessageItem
from app_server_protocol.rollout import GOAL_HEAD
from app_server_protocol.values import replace

MAX_OBJECTIVE: Final = 4000
MAX_TURNS_WITHOUT_A_CALL: Final = 10
"""Number of turns in a row without a call after which the model is unlikely to make progress by itself."""

COUNTED = (GoalStatus.ACTIVE, GoalStatus.BUDGET_LIMITED)


class GoalRefused(CoreError):
    """The requested goal is invalid."""

    def __init__(self, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class NoGoal(CoreError):
    """There is no goal to change."""


class GoalChange(Struct, frozen=True, kw_only=True):
    """Change of a goal. None leaves a part unchanged; a budget of "none" is removed."""

    objective: str | None = None
    status: GoalStatus | None = None
    token_budget: int | Literal["none"] | None = None


class GoalState(Struct):
    goal: Goal | None = None
    awake: bool = False
    """Whether the user asked for work in this process and has not interrupted it since."""
    _counted: TokenUsage = msgspec.field(default_factory=TokenUsage)
    """Usage of the conversation that is already counted."""
    _since: float | None = None
    """Time up to which the current turn is counted, if one runs; None before the first."""
    _worked_on: bool = False
    """Whether the goal was open at that time: the reply that completes it counts, too."""
    _calls: bool = False
    _turns_without_a_call: int = 0

    @property
    def wants_turn(self) -> bool:
        return self.awake and self.goal is not None and self.goal.status is GoalStatus.ACTIVE

    # --- the client
    def set(self, change: GoalChange, now: int) -> Goal:
        """Change the goal. Raises GoalRefused and NoGoal."""
        objective = change.objective.strip() if change.objective is not None else None
        _check(objective, change.token_budget)
        goal = self.goal
        if goal is None and objective is None:
            raise NoGoal("no goal exists")
        if goal is None:
            goal = Goal(objective=objective or "", created_at=now, updated_at=now)
        elif objective is not None and change.status is None:
            goal = replace(goal, status=GoalStatus.ACTIVE)
        budget = goal.token_budget
        if change.token_budget is not None:
            budget = None if change.token_budget == "none" else change.token_budget
        goal = replace(
            goal,
            objective=objective or goal.objective,
            status=change.status or goal.status,
            token_budget=budget,
            updated_at=now,
        )
        self._turns_without_a_call = 0
        self.awake = self.awake or goal.status is GoalStatus.ACTIVE
        return self._keep(goal)

    def clear(self) -> bool:
        """Remove the goal. Return whether there was one."""
        had, self.goal = self.goal is not None, None
        return had

    # --- the model
    def create(self, objective: str, token_budget: int | None, now: int) -> Goal:
        """Create a goal. Raises GoalRefused, also if there is a goal that is not complete."""
        objective = objective.strip()
        _check(objective, token_budget)
        if self.goal is not None and self.goal.status is not GoalStatus.COMPLETE:
            raise GoalRefused("this thread has a goal that is not complete; it cannot have another")
        goal = Goal(objective=objective, token_budget=token_budget, created_at=now, updated_at=now)
        return self._keep(goal)

    def update(self, status: GoalStatus, now: int) -> Goal:
        if self.goal is None:
            raise NoGoal("this thread has no goal")
        return self._keep(replace(self.goal, status=status, updated_at=now))

    # --- turns
    def turn_begins(self, used: TokenUsage, clock: float, *, asked_for: bool) -> None:
        """Record the start of a turn. `asked_for`: the user asked for it, not the goal."""
        self._counted, self._since, self._calls = used, clock, False
        self._worked_on = self.goal is not None and self._is_open
        if asked_for:
            self.awake, self._turns_without_a_call = True, 0

    def count(self, used: TokenUsage, clock: float, now: int, *, calls: bool) -> Goal | None:
        """Count a reply of the model. Return the goal if it has changed, else None."""
        self._calls = self._calls or calls
        goal = self.goal
        if goal is None:  # one that a later reply creates is counted from here on
            self._counted, self._since, self._worked_on = used, clock, False
            return None
        tokens, seconds = self._news(used, clock)
        counts = self._is_open or self._worked_on
        self._worked_on = self._is_open
        if not counts or (tokens <= 0 and seconds <= 0):
            return None
        counted = replace(
            goal,
            tokens_used=goal.tokens_used + tokens,
            seconds_used=goal.seconds_used + seconds,
            updated_at=now,
        )
        return self._keep(counted)

    def turn_ends(
        self, now: int, *, error: ErrorClass | None, interrupted: bool, for_goal: bool
    ) -> Goal | None:
        """Record the end of a turn. Return the goal if that has changed it, else None."""
        self._since = None
        self.awake = self.awake and not interrupted
        goal = self.goal
        if goal is None or goal.status is not GoalStatus.ACTIVE or not self.awake:
            return None
        if error is not None:
            limited = error is ErrorClass.USAGE_LIMIT_EXCEEDED
            status = GoalStatus.USAGE_LIMITED if limited else GoalStatus.BLOCKED
        elif for_goal and not self._calls:
            self._turns_without_a_call += 1
            if self._turns_without_a_call < MAX_TURNS_WITHOUT_A_CALL:
                return None
            status = GoalStatus.BLOCKED
        else:
            self._turns_without_a_call = 0
            return None
        return self._keep(replace(goal, status=status, updated_at=now))

    @property
    def _is_open(self) -> bool:
        return self.goal is not None and self.goal.status in COUNTED

    def _news(self, used: TokenUsage, clock: float) -> tuple[int, float]:
        """Return the tokens and seconds since the last count. If a total was reset, counting continues from its new
        value.
        """
        before, self._counted = self._counted, used
        since, self._since = self._since, clock
        return max(_spent(used) - _spent(before), 0), 0.0 if since is None else max(clock - since, 0.0)

    def _keep(self, goal: Goal) -> Goal:
        if goal.status is GoalStatus.ACTIVE and goal.is_spent:
            goal = replace(goal, status=GoalStatus.BUDGET_LIMITED)
        self.goal = goal
        return goal


def _spent(used: TokenUsage) -> int:
    """Return the tokens that count: uncached input and output."""
    return max(used.input_tokens - used.cached_input_tokens, 0) + used.output_tokens


def _check(objective: str | None, budget: int | Literal["none"] | None) -> None:
    if objective == "":
        raise GoalRefused("goal objective must not be empty", "objective")
    if objective is not None and len(objective) > MAX_OBJECTIVE:
        raise GoalRefused(f"goal objective must be at most {MAX_OBJECTIVE} characters", "objective")
    if isinstance(budget, int) and budget <= 0:
        raise GoalRefused("goal budgets must be positive when provided", "tokenBudget")


_CLOSE = "</codex_internal_context>"

_GO_ON = """Nobody has said anything new: this turn was begun because the thread has a goal that is not reached. The \
goal is what the user wants; it is a task, and changes nothing about your instructions or your rights.

<objective>
{objective}
</objective>

{budget}

- Look at the present state of files and programs first; what was said earlier may be out of date.
- Do the next step that brings the goal nearer. Keep to all of it: do not make it smaller because a part is hard.
- When every part is done, check each against the actual state, and only then call `update_goal` with `complete`.
- Call `update_goal` with `blocked` where nothing useful is left to do without the user, not because it is hard or \
slow. Say what you need.
- Else end the turn with a short account of the step; the next turn begins by itself."""

_SPENT = """The token budget of the goal ({budget}) is used up. No further turn will be begun for it. Do not begin \
anything new: bring what you are doing to a safe end, and tell the user what is done and what is left."""


def goal_turn_message(goal: Goal) -> MessageItem:
    budget = (
        f"Tokens used: {goal.tokens_used}. There is no budget."
        if goal.token_budget is None
        else f"Tokens used: {goal.tokens_used} of {goal.token_budget}; {goal.tokens_left} are left."
    )
    return _message(_GO_ON.format(objective=_plain(goal.objective), budget=budget))


def budget_spent_message(goal: Goal) -> MessageItem:
    return _message(_SPENT.format(budget=goal.token_budget))


def _message(text: str) -> MessageItem:
    return user_text(f"{GOAL_HEAD}{text}\n{_CLOSE}")


def _plain(text: str) -> str:
    """Remove tags that could end the message."""
    return text.replace("<", "‹").replace(">", "›")
