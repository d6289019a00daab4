"""Work on an open thread that no user message begins: compaction, reviews, the user's commands, items for the history,
settings, goals, and commands that run between the model's calls.

Output and ends of such commands are sent as they happen, whichever client ends the commands. Turns that are begun for a
goal are announced like any other.
"""

from __future__ import annotations

from pathlib import Path

from app_server.engine.session import review_texts
from app_server.engine.session.goals import GoalChange, GoalRefused, NoGoal
from app_server.engine.session.session_commands import (
    FORGOTTEN_MS,
    AddItems,
    ChangeSettings,
    Compact,
    Review,
    RunShell,
)
from app_server.engine.support.engine_errors import RolloutNotFound
from app_server.server.apis.contexts import ConnectionContext, ConversationContext
from app_server.server.apis.router import Route, route, route_in
from app_server.server.apis.v2.notices import goal_status, shown_goal
from app_server.server.apis.v2.open_threads import thread_of
from app_server.server.apis.v2.thread_items import response_items
from app_server.server.apis.v2.thread_settings import settings_change
from app_server.server.apis.v2.turn_shapes import review_turn
from app_server.server.apis.v2.v2_errors import parse_thread_id, thread_not_found
from app_server.server.conversations.live import LiveConversation
from app_server_protocol.engine.item_values import ReviewRequest
from app_server_protocol.rpc_errors import invalid_field, invalid_params, invalid_request
from app_server_protocol.v2 import thread_work as wire
from app_server_protocol.v2 import turn
from app_server_protocol.v2.fields import InThread
from app_server_protocol.v2.settings import THREAD_SETTINGS_UPDATE, ThreadSettingsUpdateParams
from app_server_protocol.v2.turn import ReviewStartParams, ReviewStartResponse


async def thread_compact_start(thread: ConversationContext, params: InThread) -> None:
    """Begin a turn that compacts; it interrupts the running turn."""
    thread.session.begin(Compact(), thread.turn_caller())


async def thread_inject_items(thread: ConversationContext, params: wire.ThreadInjectItemsParams) -> None:
    thread.session.do(AddItems(response_items(params.items, "items")))


async def thread_shell_command(thread: ConversationContext, params: wire.ThreadShellCommandParams) -> None:
    thread.connection.require_client_rights("thread/shellCommand")
    if not params.command.strip():
        raise invalid_field("command must not be empty", "command")
    timeout = FORGOTTEN_MS if params.timeout_ms is None else params.timeout_ms
    if timeout < 0:
        text = f"thread/shellCommand timeoutMs must be non-negative, got {timeout}"
        raise invalid_params(text, "timeoutMs")
    thread.session.begin(RunShell(params.command.strip(), timeout), thread.turn_caller())


async def thread_settings_update(thread: ConversationContext, params: ThreadSettingsUpdateParams) -> None:
    """Change settings from the next turn on; `thread/settings/updated` reports the settings in force if any has
    changed.
    """
    thread.connection.require_existing_folder(params.cwd)
    facts = thread.session.facts
    change = facts.permitted(settings_change(params, facts.config))
    thread.session.do(ChangeSettings(change))


async def review_start(thread: ConversationContext, params: ReviewStartParams) -> ReviewStartResponse:
    """Begin a turn that reviews; it interrupts the running turn."""
    request = await _review_request(thread, params.target)
    started = thread.session.begin(Review(request), thread.turn_caller())
    turn = review_turn(started.turn, request.user_facing_hint)
    return ReviewStartResponse(turn=turn, review_thread_id=thread.id)


async def _review_request(thread: ConversationContext, target: turn.ReviewTarget) -> ReviewRequest:
    match target:
        case turn.UncommittedChangesReviewTarget():
            return review_texts.uncommitted_changes()
        case turn.BaseBranchReviewTarget():
            branch = _required_text(target.branch, "branch")
            cwd = Path(thread.session.facts.settings.cwd)
            base = await thread.connection.host.merge_base(cwd, branch)
            return review_texts.against_branch(branch, base)
        case turn.CommitReviewTarget():
            title = (target.title or "").strip()
            return review_texts.of_commit(_required_text(target.sha, "sha"), title or None)
        case turn.CustomReviewTarget():
            return review_texts.as_instructed(_required_text(target.instructions, "instructions"))


def _required_text(text: str, field: str) -> str:
    text = text.strip()
    if not text:
        raise invalid_field(f"{field} must not be empty", f"target.{field}")
    return text


MOST_DIGITS = 18


async def terminals_list(
    thread: ConversationContext, params: wire.ThreadBackgroundTerminalsListParams
) -> wire.ThreadBackgroundTerminalsListResponse:
    """List terminals by number, all of them unless a limit is given; the cursor is the number of the last terminal of
    the page.
    """
    after = -1 if params.cursor is None else _number(params.cursor, "invalid cursor", "cursor")
    rest = [each for each in thread.session.terminals() if each.number > after]
    page = rest if params.limit is None else rest[: max(params.limit, 1)]
    turn = thread.followed_turn()
    usages = await thread.session.usage_of(page)
    return wire.ThreadBackgroundTerminalsListResponse(
        data=tuple(
            wire.ThreadBackgroundTerminal(
                item_id=turn.item_id(each.turn_id, each.item.id),
                process_id=str(each.number),
                command=each.line,
                cwd=each.item.cwd,
                os_pid=None if usage is None else usage.pid,
                cpu_percent=None if usage is None else usage.cpu_percent,
                rss_kb=None if usage is None else usage.rss_kb,
            )
            for each, usage in zip(page, usages, strict=True)
        ),
        next_cursor=str(page[-1].number) if len(page) < len(rest) else None,
    )


async def terminals_terminate(
    thread: ConversationContext, params: wire.ThreadBackgroundTerminalsTerminateParams
) -> wire.ThreadBackgroundTerminalsTerminateResponse:
    number = _number(params.process_id, "invalid background terminal process id", "processId")
    return wire.ThreadBackgroundTerminalsTerminateResponse(terminated=thread.session.kill_terminals({number}))


async def terminals_clean(thread: ConversationContext, params: InThread) -> None:
    thread.session.kill_terminals()


def _number(text: str, problem: str, field: str) -> int:
    if text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS:
        return int(text)
    raise invalid_field(f"{problem}: expected a number", field)


async def thread_goal_set(
    thread: ConversationContext, params: wire.ThreadGoalSetParams
) -> wire.ThreadGoalSetResponse:
    live = _with_goals(thread.live)
    takes_budget_away = params.token_budget is None and "token_budget" in params.model_fields_set
    change = GoalChange(
        objective=params.objective,
        status=goal_status(params.status),
        token_budget="none" if takes_budget_away else params.token_budget,
    )
    try:
        goal = live.session.goal.set(change, thread.turn_caller())
    except GoalRefused as error:
        raise invalid_field(str(error), error.field) from error
    except NoGoal as error:
        text = f"cannot update goal for thread {live.id}: {error}"
        raise invalid_request(text, "no_goal", "objective") from error
    return wire.ThreadGoalSetResponse(goal=shown_goal(live.id, goal))


async def thread_goal_get(context: ConnectionContext, params: InThread) -> wire.ThreadGoalGetResponse:
    """Return the goal of a thread, which may be stored without being open."""
    thread_id = parse_thread_id(params.thread_id)
    live = context.conversations.find(thread_id)
    if live is not None:
        goal = _with_goals(live).session.facts.goal
    else:
        try:
            path = await context.stored.get().find(thread_id, archived=False)
        except RolloutNotFound:
            raise thread_not_found(thread_id) from None
        goal = await context.stored.get().goal(path)
    return wire.ThreadGoalGetResponse(goal=None if goal is None else shown_goal(thread_id, goal))


async def thread_goal_clear(
    thread: ConversationContext, params: wire.ThreadGoalClearParams
) -> wire.ThreadGoalClearResponse:
    """Remove the goal; a running turn for it goes on to its end."""
    live = _with_goals(thread.live)
    return wire.ThreadGoalClearResponse(cleared=live.session.goal.clear())


def _with_goals(live: LiveConversation) -> LiveConversation:
    """Return the thread, if it can have a goal. Raises RpcError for an ephemeral thread, which ends with
    its process.
    """
    if live.rollout_path is None:
        raise invalid_request(f"ephemeral thread does not support goals: {live.id}", "ephemeral")
    return live


def routes(context: ConnectionContext) -> tuple[Route, ...]:
    thread = thread_of(context)
    return (
        route_in(wire.THREAD_COMPACT_START, thread_compact_start, thread),
        route_in(wire.THREAD_INJECT_ITEMS, thread_inject_items, thread),
        route_in(wire.THREAD_SHELL_COMMAND, thread_shell_command, thread),
        route_in(THREAD_SETTINGS_UPDATE, thread_settings_update, thread),
        route_in(turn.REVIEW_START, review_start, thread),
        route_in(wire.THREAD_GOAL_SET, thread_goal_set, thread),
        route(wire.THREAD_GOAL_GET, thread_goal_get, context),
        route_in(wire.THREAD_GOAL_CLEAR, thread_goal_clear, thread),
        route_in(wire.THREAD_BACKGROUND_TERMINALS_LIST, terminals_list, thread),
        route_in(wire.THREAD_BACKGROUND_TERMINALS_TERMINATE, terminals_terminate, thread),
        route_in(wire.THREAD_BACKGROUND_TERMINALS_CLEAN, terminals_clean, thread),
    )
