"""What the model is sent about the goal: when a turn begins for it, and when the budget is used up. Pure."""

from __future__ import annotations

from app_server.core.context.environment_context import user_text
from app_server.core.injected_messages import GOAL_HEAD
from protocol.engine.goals import Goal
from protocol.responses import MessageItem

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
    """Without marks that could end the message."""
    return text.replace("<", "‹").replace(">", "›")
