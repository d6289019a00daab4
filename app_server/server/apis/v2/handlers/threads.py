"""Opening threads: a new one, a stored one, or joining one that is open; and unsubscribing."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from app_server.engine.storage.pagination import PageRequest
from app_server.engine.storage.rollout_names import conversation_of
from app_server.engine.support.engine_errors import (
    UNREADABLE_CONFIG,
    BeyondClientRights,
    ConfigError,
    RolloutNotFound,
)
from app_server.engine.thread_origin import NewConversation, Origin, StoredRollout, SuppliedHistory
from app_server.server.apis.contexts import ConnectionContext, ConversationContext
from app_server.server.apis.router import Route, route
from app_server.server.apis.v2.joined_threads import JoinedThread, NewestIds
from app_server.server.apis.v2.notices import shown_goal, token_usage
from app_server.server.apis.v2.open_threads import SUBSCRIPTION, join, subscribe, to_audience
from app_server.server.apis.v2.page_sizes import turns_page
from app_server.server.apis.v2.reopening import reopened
from app_server.server.apis.v2.shared_threads import shared_threads, thread_api
from app_server.server.apis.v2.thread_items import response_items
from app_server.server.apis.v2.thread_notifier import to_client
from app_server.server.apis.v2.thread_reader import thread_reader
from app_server.server.apis.v2.thread_settings import (
    client_tools,
    collaboration_mode,
    overrides_of,
    shown_settings,
    skill_folders,
    thread_status,
)
from app_server.server.apis.v2.turn_shapes import whole_turns
from app_server.server.apis.v2.v2_errors import parse_thread_id, rollout_not_found
from app_server_protocol.encoding import Json
from app_server_protocol.engine.events import TurnRecord
from app_server_protocol.ids import ConversationId
from app_server_protocol.rpc_errors import invalid_field, invalid_request
from app_server_protocol.v2 import thread as wire
from app_server_protocol.v2 import thread_open
from app_server_protocol.v2.fields import InThread
from app_server_protocol.v2.turn import Turn

if TYPE_CHECKING:
    from app_server.engine.session.facade import SessionFacts


async def thread_start(
    context: ConnectionContext, params: thread_open.ThreadStartParams
) -> AsyncIterator[thread_open.ThreadStartResponse]:
    context.require_folder(params.cwd)
    with settings_errors():
        config = context.config.load(overrides_of(params))
    origin = NewConversation(
        client_tools(params.dynamic_tools or ()),
        skill_folders=skill_folders(params.selected_capability_roots or ()),
        ephemeral=params.ephemeral is True,
        paginated=params.history_mode is not wire.ThreadHistoryMode.LEGACY,
    )
    live, _ = await context.conversations.open(context.client, config, origin)
    async with live.opened():
        live.auto_unload = True
        thread = ConversationContext(context, live, thread_api(context))
        shown = thread_reader(context).new(live)
        yield thread_open.ThreadStartResponse(thread=shown, **in_force(live.session.facts))
        to_audience(context, live.id).notify(wire.THREAD_STARTED, thread=shown)
        subscribe(thread, raw=params.experimental_raw_events)


async def thread_resume(
    context: ConnectionContext, params: thread_open.ThreadResumeParams
) -> AsyncIterator[thread_open.ThreadResumeResponse]:
    # The file name has the thread's id, which takes precedence over the id in the request.
    id = parse_thread_id(conversation_of(os.path.basename(params.path or ""), params.thread_id))
    context.require_existing_folder(params.cwd)
    live, stored = await context.conversations.find_settled(id), None
    async with AsyncExitStack() as keeping:
        if live is None:
            thread, stored = await _reopen(context, id, params, keeping)
        else:
            keeping.enter_context(live.kept())
            thread = ConversationContext(context, live, thread_api(context))
            _require_joinable(thread, params)
            _change_settings(thread, params)
        live, reader = thread.live, thread_reader(context)
        since = thread.followed_turn().position
        turns = () if params.exclude_turns else await stored_turns(thread, stored)
        usage_turn = await turn_of_usage(thread, stored)
        summary = await reader.summary(await reader.find(live.id))
        # A client that does not request turns reads the items of a paginated thread from their end.
        newest = await newest_ids(thread) if params.exclude_turns else NewestIds()
        page = await _first_page(thread, params.initial_turns_page)
        # Nothing is awaited from here on, until the client is subscribed.
        joined = JoinedThread(live.catch_up(), since)
        turns_cursor, items_cursor = joined.newest(newest).cursors() if params.exclude_turns else (None, None)
        yield thread_open.ThreadResumeResponse(
            thread=reader.view(summary, () if params.exclude_turns else joined.turns(turns)),
            turns_backwards_cursor=turns_cursor,
            items_backwards_cursor=items_cursor,
            initial_turns_page=page(joined),
            collaboration_mode=collaboration_mode(live.session.facts.settings),
            **in_force(live.session.facts),
        )
        tell_usage(thread, joined.newest(NewestIds(usage_turn)).turn)
        join(thread)
        if (goal := live.session.facts.goal) is not None:
            shown = shown_goal(live.id, goal)
            to_client(context).notify(wire.THREAD_GOAL_UPDATED, thread_id=live.id, goal=shown)


async def newest_ids(thread: ConversationContext) -> NewestIds:
    """Return the ids of the last turn and the last item that are stored."""
    if thread.live.rollout_path is None:
        return NewestIds()
    newest, reader = PageRequest(limit=1, newest_first=True), thread_reader(thread.connection)
    turns, items = await reader.read(
        await reader.find(thread.id),
        lambda history: (history.turns(newest).rows, history.items(newest).rows),
    )
    return NewestIds(turns[0].id if turns else None, items[0].ended.item.id if items else None)


async def _first_page(
    thread: ConversationContext, wanted: thread_open.ThreadResumeInitialTurnsPageParams | None
) -> Callable[[JoinedThread], thread_open.TurnsPage | None]:
    """Read the page of turns that the client requests with the response. Return the function that shows it; that of a
    client that requests none, or of a thread that is not stored, returns None.
    """
    if wanted is None or thread.live.rollout_path is None:
        return lambda joined: None
    newest_first = wanted.sort_direction != "asc"
    request, reader = (
        PageRequest(limit=wanted.limit, newest_first=newest_first),
        thread_reader(thread.connection),
    )
    page = await reader.read(await reader.find(thread.id), lambda history: history.turns(request))
    return lambda joined: turns_page(joined.page(page, newest_first=newest_first), wanted.items_view)


async def thread_unsubscribe(
    context: ConnectionContext, params: InThread
) -> AsyncIterator[thread_open.ThreadUnsubscribeResponse]:
    live = context.conversations.find(parse_thread_id(params.thread_id))
    if live is None:
        status: thread_open.ThreadUnsubscribeStatus = "notLoaded"
    elif context.client not in live.subscriptions.subscribers(thread_api(context)):
        status = "notSubscribed"
    else:
        live.unsubscribe(context.client, SUBSCRIPTION)
        status = "unsubscribed"
    yield thread_open.ThreadUnsubscribeResponse(status=status)
    await shared_threads(context).unloader.look()


def _require_joinable(thread: ConversationContext, params: thread_open.ThreadResumeParams) -> None:
    """Check that a thread can be joined. Raises RpcError if it is not stored, or if the request gives another history:
    the thread goes on with the history that it has.
    """
    live = thread.live
    if live.rollout_path is None:
        raise rollout_not_found(live.id)
    if params.history is not None:
        text = f"cannot resume thread {live.id} with history while it is already running"
        raise invalid_field(text, "history")
    named = params.path and os.path.realpath(thread.connection.config.home / params.path)
    if named and named != os.path.realpath(live.rollout_path):
        text = f"cannot resume running thread {live.id} with stale path: requested `{params.path}`"
        raise invalid_field(f"{text}, active `{live.rollout_path}`", "path")


def _change_settings(thread: ConversationContext, params: thread_open.ThreadResumeParams) -> None:
    """Apply the settings that the request names from the next turn on, also in a thread that another client has or had
    open.
    """
    if thread.live.opened_by is thread.client and not thread.live.shared_with_others(thread.client):
        return
    with settings_errors():
        given = overrides_of(params)
        config = thread.connection.config.load(given)
    thread.change_settings(given, config)


async def _reopen(
    context: ConnectionContext,
    id: ConversationId,
    params: thread_open.ThreadResumeParams,
    keeping: AsyncExitStack,
) -> tuple[ConversationContext, tuple[TurnRecord, ...]]:
    """Open a thread, and keep it open for the client of this request; return it with its stored turns. A thread that
    begins with the given history is a new one.
    """
    given = overrides_of(params)
    with settings_errors():
        if params.history is not None:
            origin: Origin = SuppliedHistory(response_items(params.history, "history"), paginated=True)
            config = context.config.load(given)
        else:
            path = await (_named_path(context, id, params.path) if params.path else stored_path(context, id))
            origin = StoredRollout(path, turns=True, keeps_usage=True)
            config = await reopened(context.config, context.stored.get(), path, given)
    live, opened = await context.conversations.open(context.client, config, origin)
    thread, stored = ConversationContext(context, live, thread_api(context)), opened.stored
    await keeping.enter_async_context(live.opened())
    live.subscriptions.adapter(thread.api, context.client)
    live.auto_unload = True
    status = thread_status(live.status)
    to_audience(context, live.id).notify(wire.THREAD_STATUS_CHANGED, thread_id=live.id, status=status)
    return thread, () if stored is None or stored.turns is None else stored.turns.turns


@contextmanager
def settings_errors() -> Iterator[None]:
    """Convert errors of settings into an error whose beginning clients know."""
    try:
        yield
    except BeyondClientRights:
        raise
    except ConfigError as error:
        text = str(error).removeprefix(UNREADABLE_CONFIG)
        raise invalid_request(f"{UNREADABLE_CONFIG}{text}", "config") from error


def in_force(facts: SessionFacts) -> dict[str, Json]:
    """Return the settings that the next turn of a thread starts from."""
    settings = facts.settings
    shown = shown_settings(settings, facts.config.provider.id)
    return {
        "model": shown.model,
        "model_provider": shown.model_provider,
        "service_tier": shown.service_tier,
        "cwd": shown.cwd,
        "approval_policy": shown.approval_policy,
        "active_permission_profile": shown.active_permission_profile,
        "approvals_reviewer": shown.approvals_reviewer,
        "sandbox": shown.sandbox_policy,
        "reasoning_effort": shown.effort,
        "instruction_sources": tuple(facts.instruction_sources),
        "runtime_workspace_roots": (settings.cwd, *settings.workspace_roots),
    }


async def turn_of_usage(thread: ConversationContext, stored: tuple[TurnRecord, ...] | None) -> str | None:
    """Return the id of the last turn of a thread, under which its usage is told; None if the usage is not known, or if
    nothing is stored. `stored` are the turns, if they were read already.
    """
    if thread.live.session.facts.usage is None or thread.live.rollout_path is None:
        return None
    if stored is None:
        return (await newest_ids(thread)).turn
    return stored[-1].id if stored else None


def tell_usage(thread: ConversationContext, turn_id: str | None) -> None:
    """Notify the client of the usage of a thread that was stored or open before, under its last turn."""
    if (usage := thread.live.session.facts.usage) is not None and turn_id is not None:
        to_client(thread.connection).notify(
            wire.THREAD_TOKEN_USAGE_UPDATED,
            thread_id=thread.id,
            turn_id=turn_id,
            token_usage=token_usage(usage),
        )


async def shown_thread(thread: ConversationContext, turns: tuple[Turn, ...] = ()) -> wire.Thread:
    reader = thread_reader(thread.connection)
    return await reader.shown(await reader.find(thread.id), turns)


async def stored_turns(
    thread: ConversationContext, stored: tuple[TurnRecord, ...] | None = None
) -> tuple[Turn, ...]:
    """Return all turns that are stored, oldest first. `stored` are the turns that were read already, if they were."""
    reader = thread_reader(thread.connection)
    if stored is not None:
        return await reader.stored.show(stored, whole_turns)
    return await reader.read(await reader.find(thread.id), lambda history: whole_turns(history.all_turns()))


async def _named_path(context: ConnectionContext, thread_id: ConversationId, named: str) -> Path:
    path = context.config.home / named
    if not await context.stored.get().is_file(path):
        raise rollout_not_found(thread_id)
    return path


async def stored_path(context: ConnectionContext, thread_id: ConversationId) -> Path:
    try:
        return await context.stored.get().find(thread_id, archived=False)
    except RolloutNotFound:
        if await context.stored.get().find_archived(thread_id) is not None:
            text = f"session {thread_id} is archived; bring it back with thread/unarchive first"
            raise invalid_request(text, "archived") from None
        raise rollout_not_found(thread_id) from None


def routes(context: ConnectionContext) -> tuple[Route, ...]:
    thread_api(context)
    return (
        route(thread_open.THREAD_START, thread_start, context),
        route(thread_open.THREAD_RESUME, thread_resume, context),
        route(thread_open.THREAD_UNSUBSCRIBE, thread_unsubscribe, context),
    )
