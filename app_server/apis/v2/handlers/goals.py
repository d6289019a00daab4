"""The goal of a thread: set, read, taken away. Turns that are begun for it are announced like any other."""

from __future__ import annotations

from app_server.apis.v2.goals import goal_status, shown_goal
from app_server.apis.v2.handlers.threads import ThreadContext, loaded
from app_server.apis.v2.thread_ids import parse_thread_id, thread_not_found
from app_server.conversations.live import LiveConversation
from app_server.core.errors import RolloutNotFound
from app_server.core.goals.goal_keeper import GoalChange, GoalRefused, NoGoal
from app_server.core.rollout.listing import find_rollout
from app_server.core.rollout.stored_goal import last_goal
from app_server.core.threads import run_in_thread
from app_server.rpc.errors import invalid_request
from protocol.v2 import thread_work as wire


async def thread_goal_set(
    context: ThreadContext, params: wire.ThreadGoalSetParams
) -> wire.ThreadGoalSetResponse:
    """Nothing is awaited, so the response is queued before anything that follows from it."""
    live = _with_goals(loaded(context, params.thread_id))
    takes_budget_away = params.token_budget is None and "token_budget" in params.model_fields_set
    change = GoalChange(
        objective=params.objective,
        status=goal_status(params.status),
        token_budget="none" if takes_budget_away else params.token_budget,
    )
    live.new_operation(context.make_adapter)  # what its turns ask is asked in this API
    try:
        goal = live.session.goal.set(change)
    except GoalRefused as error:
        raise invalid_request(str(error), "invalid_params", error.field) from error
    except NoGoal as error:
        text = f"cannot update goal for thread {live.id}: {error}"
        raise invalid_request(text, "no_goal", "objective") from error
    return wire.ThreadGoalSetResponse(goal=shown_goal(live.id, goal))


async def thread_goal_get(
    context: ThreadContext, params: wire.ThreadGoalGetParams
) -> wire.ThreadGoalGetResponse:
    """Also of a thread that is stored only."""
    thread_id = parse_thread_id(params.thread_id)
    live = context.conversations.find(thread_id)
    if live is not None:
        goal = _with_goals(live).session.goal.current
    else:
        try:
            path = await run_in_thread(find_rollout, context.config.home, thread_id)
        except RolloutNotFound:
            raise thread_not_found(thread_id) from None
        goal = await run_in_thread(last_goal, path)
    return wire.ThreadGoalGetResponse(goal=None if goal is None else shown_goal(thread_id, goal))


async def thread_goal_clear(
    context: ThreadContext, params: wire.ThreadGoalClearParams
) -> wire.ThreadGoalClearResponse:
    """A turn that runs for it goes on to its end."""
    live = _with_goals(loaded(context, params.thread_id))
    return wire.ThreadGoalClearResponse(cleared=live.session.goal.clear())


def _with_goals(live: LiveConversation) -> LiveConversation:
    """The thread, if it can have a goal: an ephemeral one ends with its process. Raises RpcError."""
    if live.rollout_path is None:
        raise invalid_request(f"ephemeral thread does not support goals: {live.id}", "ephemeral")
    return live
