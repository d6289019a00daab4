"""Opening threads: a new one, a stored one, or joining one that is open; and unsubscribing."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from msgspec import Struct

from app_server.engine.session.session_commands import ChangeSettings
from app_server.engine.storage.pagination import PageRequest
from app_server.engine.storage.rollout_names import conversation_of
from app_server.engine.support.engine_errors import (
    UNREADABLE_CONFIG,
    BeyondClientRights,
    ConfigError,
    RolloutNotFound,
)
from app_server.engine.thread_origin import NewConversation, Origin, StoredRollout, SuppliedHistory
from app_server.server.apis.api_services import (
    ServerServices,
    require_existing_folder,
    require_folder,
    resolved_patch,
)
from app_server.server.apis.router import Route, route
from app_server.server.apis.v2.account_limits import AccountLimits
from app_server.server.apis.v2.loaded_threads import LoadedThreads, ReadingContext
from app_server.server.apis.v2.notices import shown_goal, token_usage
from app_server.server.apis.v2.page_sizes import turns_page
from app_server.server.apis.v2.reopening import reopened
from app_server.server.apis.v2.thread_items import response_items
from app_server.server.apis.v2.thread_settings import (
    client_tools,
    collaboration_mode,
    overrides_of,
    shown_settings,
    skill_folders,
    thread_status,
)
from app_server.server.apis.v2.turn_shapes import whole_turns
from app_server.server.apis.v2.v2_adapter import ThreadAdapter, running_turn
from app_server.server.apis.v2.v2_errors import parse_thread_id, rollout_not_found
from app_server.server.apis.v2.v2_services import SUBSCRIPTION, ThreadContext, ThreadNotifier, ThreadServices
from app_server.server.conversations.adapter import ApiId, ConversationApi
from app_server.server.conversations.idle import IdleReaper
from app_server.server.conversations.live import LiveConversation
from app_server.server.conversations.subscriptions import Client
from app_server_protocol.encoding import Json
from app_server_protocol.engine.events import TurnRecord
from app_server_protocol.engine.thread_settings import UNCHANGED
from app_server_protocol.ids import ConversationId
from app_server_protocol.rpc_errors import invalid_field, invalid_request
from app_server_protocol.v2 import thread as wire
from app_server_protocol.v2 import thread_open
from app_server_protocol.v2.fields import InThread
from app_server_protocol.v2.turn import Turn
from app_server_protocol.values import replace

if TYPE_CHECKING:
    from app_server.engine.session.facade import SessionFacts


async def thread_start(
    context: ThreadContext, params: thread_open.ThreadStartParams
) -> AsyncIterator[thread_open.ThreadStartResponse]:
    require_folder(context.client, params.cwd)
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
        thread = await shown_thread(context, live)
        yield thread_open.ThreadStartResponse(thread=thread, **in_force(live.session.facts))
        context.to_audience(live.id).notify(wire.THREAD_STARTED, thread=thread)
        context.subscribe(live, raw=params.experimental_raw_events)


async def thread_resume(
    context: ThreadContext, params: thread_open.ThreadResumeParams
) -> AsyncIterator[thread_open.ThreadResumeResponse]:
    # The file name has the thread's id, which takes precedence over the id in the request.
    id = parse_thread_id(conversation_of(os.path.basename(params.path or ""), params.thread_id))
    require_existing_folder(context.client, params.cwd)
    live, stored = await context.conversations.find_settled(id), None
    if live is None:
        live, stored = await _reopen(context, id, params)
    else:
        _require_joinable(context, live, params)
        _change_settings(context, live, params)
    with live.kept(), context.joining(live) as joining:
        running, status = running_turn(context.reading.live.live_turn(live)), live.status
        turns = () if params.exclude_turns else await all_turns(context, live, stored)
        if joining.begun is not None and not params.exclude_turns:
            turns = _as_joined(turns, running, joining.begun)
        tell_usage = await usage_so_far(context, live, stored)
        thread = await shown_thread(context, live, turns)
        if joining.begun is not None:  # later changes are sent after the response
            thread = replace(thread, status=thread_status(status))
        # A client that does not request turns reads the items of a paginated thread from their end.
        places = await newest_places(context, live) if params.exclude_turns else (None, None)
        page = await first_page(context, live, params.initial_turns_page)
        yield thread_open.ThreadResumeResponse(
            thread=thread,
            turns_backwards_cursor=places[0],
            items_backwards_cursor=places[1],
            initial_turns_page=page,
            collaboration_mode=collaboration_mode(live.session.facts.settings),
            **in_force(live.session.facts),
        )
        tell_usage()
        # Open questions are asked again, and all later events are sent.
        joining.enter()
    if (goal := live.session.facts.goal) is not None:
        context.notifier.notify(wire.THREAD_GOAL_UPDATED, thread_id=live.id, goal=shown_goal(live.id, goal))


async def newest_places(context: ThreadContext, live: LiveConversation) -> tuple[str | None, str | None]:
    """Return cursors from which a client pages back through the turns and the items; None if nothing is stored."""
    if live.rollout_path is None:
        return None, None
    newest = PageRequest(limit=1, newest_first=True)
    thread = await context.reading.find(live.id)
    return await context.reading.read(
        thread,
        lambda history: (history.turns(newest).backwards_cursor, history.items(newest).backwards_cursor),
    )


async def first_page(
    context: ThreadContext,
    live: LiveConversation,
    wanted: thread_open.ThreadResumeInitialTurnsPageParams | None,
) -> thread_open.TurnsPage | None:
    """Return the page of stored turns that the client requests with the response; None if it requests none, or if
    nothing is stored.
    """
    if wanted is None or live.rollout_path is None:
        return None
    request = PageRequest(limit=wanted.limit, newest_first=wanted.sort_direction != "asc")
    thread = await context.reading.find(live.id)
    page = await context.reading.read(thread, lambda history: history.turns(request))
    return turns_page(page, wanted.items_view)


async def thread_unsubscribe(
    context: ThreadContext, params: InThread
) -> AsyncIterator[thread_open.ThreadUnsubscribeResponse]:
    live = context.conversations.find(parse_thread_id(params.thread_id))
    if live is None:
        status: thread_open.ThreadUnsubscribeStatus = "notLoaded"
    elif context.client not in live.subscriptions.subscribers(context.api):
        status = "notSubscribed"
    else:
        live.unsubscribe(context.client, SUBSCRIPTION)
        status = "unsubscribed"
    yield thread_open.ThreadUnsubscribeResponse(status=status)
    await context.unloader.look()


def _require_joinable(
    context: ThreadContext, live: LiveConversation, params: thread_open.ThreadResumeParams
) -> None:
    """Check that a thread can be joined. Raises RpcError if it is not stored, or if the request gives another history:
    the thread goes on with the history that it has.
    """
    if live.rollout_path is None:
        raise rollout_not_found(live.id)
    if params.history is not None:
        text = f"cannot resume thread {live.id} with history while it is already running"
        raise invalid_field(text, "history")
    named = params.path and os.path.realpath(context.config.home / params.path)
    if named and named != os.path.realpath(live.rollout_path):
        text = f"cannot resume running thread {live.id} with stale path: requested `{params.path}`"
        raise invalid_field(f"{text}, active `{live.rollout_path}`", "path")


def _change_settings(
    context: ThreadContext, live: LiveConversation, params: thread_open.ThreadResumeParams
) -> None:
    """Apply the settings that the request names from the next turn on, also in a thread that another client has or had
    open.
    """
    if live.opened_by is context.client and not live.shared_with_others(context.client):
        return
    with settings_errors():
        given = overrides_of(params)
        change = resolved_patch(given, context.config.load(given))
    if change != UNCHANGED:
        live.session.do(ChangeSettings(live.session.facts.permitted(change)))


async def _reopen(
    context: ThreadContext, id: ConversationId, params: thread_open.ThreadResumeParams
) -> tuple[LiveConversation, tuple[TurnRecord, ...]]:
    """Open a thread; return it with its stored turns. A thread that begins with the given history is a new one."""
    given = overrides_of(params)
    with settings_errors():
        if params.history is not None:
            origin: Origin = SuppliedHistory(response_items(params.history, "history"), paginated=True)
            config = context.config.load(given)
        else:
            path = await (_named_path(context, id, params.path) if params.path else stored_path(context, id))
            origin = StoredRollout(path, turns=True, keeps_usage=True)
            config = await reopened(context.config, context.reading.stored, path, given)
    live, opened = await context.conversations.open(context.client, config, origin)
    stored = opened.stored
    async with live.opened():
        live.subscriptions.adapter(context.api, context.client)
        live.auto_unload = True
    status = thread_status(live.status)
    context.to_audience(live.id).notify(wire.THREAD_STATUS_CHANGED, thread_id=live.id, status=status)
    return live, () if stored is None or stored.turns is None else stored.turns.turns


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


async def usage_so_far(
    context: ThreadContext, live: LiveConversation, stored: tuple[TurnRecord, ...] | None
) -> Callable[[], None]:
    """Return the function that notifies the client of the usage of a thread that was stored or open before, under its
    last turn. It sends nothing if the usage is not known, or if tokens were used since: that usage is sent anyway.
    `stored` are the turns, if they were read already.
    """
    usage = live.session.facts.usage
    turns: Sequence[TurnRecord] = ()
    if usage is not None and live.rollout_path is not None:
        if stored is not None and context.reading.live.running_turn(live.id) is None:
            turns = stored[-1:]
        else:
            newest = PageRequest(limit=1, newest_first=True)
            thread = await context.reading.find(live.id)
            turns = await context.reading.read(thread, lambda history: history.turns(newest).rows)

    def tell() -> None:
        if usage is not None and turns and usage is live.session.facts.usage:
            context.notifier.notify(
                wire.THREAD_TOKEN_USAGE_UPDATED,
                thread_id=live.id,
                turn_id=turns[0].id,
                token_usage=token_usage(usage),
            )

    return tell


async def shown_thread(
    context: ThreadContext, live: LiveConversation, turns: tuple[Turn, ...] = ()
) -> wire.Thread:
    return await context.reading.shown(await context.reading.find(live.id), turns)


async def all_turns(
    context: ThreadContext, live: LiveConversation, stored: tuple[TurnRecord, ...] | None = None
) -> tuple[Turn, ...]:
    """Return all turns, oldest first; a running turn is the last, with the items that go on. `stored` are the turns
    that were read already, if they were.
    """
    if stored is None:
        thread = await context.reading.find(live.id)
        turns = await context.reading.read(thread, lambda history: whole_turns(history.all_turns()))
    else:
        turns = await context.reading.stored.show(stored, whole_turns)
    running = context.reading.live.running_turn(live.id)
    if running is None:
        return turns
    return (*(turn for turn in turns if turn.id != running.id), running)


def _as_joined(turns: tuple[Turn, ...], running: Turn | None, begun: Collection[str]) -> tuple[Turn, ...]:
    """Return the turns as they were when the client joined; later events are sent as notifications."""
    before = tuple(
        turn for turn in turns if turn.id not in begun and (running is None or turn.id != running.id)
    )
    return before if running is None else (*before, running)


async def _named_path(context: ThreadContext, thread_id: ConversationId, named: str) -> Path:
    path = context.config.home / named
    if not await context.reading.stored.is_file(path):
        raise rollout_not_found(thread_id)
    return path


async def stored_path(context: ThreadContext, thread_id: ConversationId) -> Path:
    try:
        return await context.reading.stored.find(thread_id, archived=False)
    except RolloutNotFound:
        if await context.reading.stored.find_archived(thread_id) is not None:
            text = f"session {thread_id} is archived; bring it back with thread/unarchive first"
            raise invalid_request(text, "archived") from None
        raise rollout_not_found(thread_id) from None


class SharedThreads(Struct, frozen=True):
    """State that all clients of this API share."""

    api: ConversationApi
    unloader: IdleReaper


def thread_context(services: ServerServices, notifier: ThreadNotifier) -> ThreadContext:
    """Return the services of the handlers for threads."""
    config, conversations, client = services.config, services.conversations, services.client
    shared = services.shared.get(SharedThreads, lambda: _shared_threads(services, notifier))
    client.speaks.add(shared.api.id)
    loaded = LoadedThreads(conversations, shared.api, client, services.handshake.user_agent)
    return ThreadContext(
        config=config,
        conversations=conversations,
        client=client,
        notifier=notifier,
        api=shared.api,
        reading=ReadingContext(config, loaded, services.stored),
        unloader=shared.unloader,
        host=services.host,
    )


def _shared_threads(services: ServerServices, notifier: ThreadNotifier) -> SharedThreads:
    """Make the state that clients of the thread API share, for the first such client, and begin to unload
    idle threads.
    """
    conversations, machine = services.conversations, services.machine
    limits = services.shared.get(AccountLimits, AccountLimits)

    def new_adapter(thread_id: str) -> ThreadAdapter:
        live = conversations.find(thread_id)
        used = None if live is None else live.session.facts.usage
        return ThreadAdapter(thread_id, machine.wall_clock, limits, used)

    api = ConversationApi(ApiId("v2"), new_adapter)

    def closed(live: LiveConversation) -> None:
        heard, id = notifier.to(live.subscriptions.audience(api)), live.id
        heard.notify(wire.THREAD_CLOSED, thread_id=id)
        heard.notify(wire.THREAD_STATUS_CHANGED, thread_id=id, status=wire.NotLoadedThreadStatus())

    def renamed(id: str, name: str, by: Client) -> None:
        live = conversations.find(id)
        heard = conversations.hear_all(api) if live is None else live.subscriptions.audience(api)
        if api.id in by.speaks:
            heard = [by, *(each for each in heard if each is not by)]
        notifier.to(heard).notify(wire.THREAD_NAME_UPDATED, thread_id=id, thread_name=name)

    conversations.on_renamed[api.id] = renamed
    unloader = services.shared.get(IdleReaper, lambda: IdleReaper(conversations, machine.monotonic))
    unloader.closed.append(closed)
    conversations.in_background(partial(unloader.run, anyio.sleep), "idle conversations")
    return SharedThreads(api, unloader)


def routes(services: ThreadServices) -> tuple[Route, ...]:
    threads = services.threads.get()
    return (
        route(thread_open.THREAD_START, thread_start, threads),
        route(thread_open.THREAD_RESUME, thread_resume, threads),
        route(thread_open.THREAD_UNSUBSCRIBE, thread_unsubscribe, threads),
    )
