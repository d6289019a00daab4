"""A thread that begins as a copy of another, and a thread that is taken back to an earlier turn."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from pathlib import Path

from msgspec.structs import replace

from app_server.apis.router import Route, route
from app_server.apis.v2.errors import parse_thread_id, rollout_not_found
from app_server.apis.v2.handlers import threads
from app_server.apis.v2.opening import in_force, overrides_of, reopened
from app_server.apis.v2.services import ThreadContext, ThreadNotifier, ThreadServices
from app_server.apis.v2.settings import thread_status
from app_server.conversations.adapter import Activity, ConversationStatus
from app_server.conversations.live import LiveConversation
from app_server.core.errors import describe
from app_server.core.opening import Fork, Revert, StoredRollout
from app_server.core.rollout.pages import PageRequest, TurnCut
from app_server.core.rollout.rollout_names import parse_rollout_name
from app_server.rpc.errors import invalid_field, invalid_request
from protocol.ids import ConversationId
from protocol.v2 import thread as wire
from protocol.v2.thread_open import THREAD_FORK, ThreadForkParams, ThreadForkResponse
from protocol.v2.thread_store import THREAD_REVERT, ThreadRevertParams, ThreadRevertResponse

log = logging.getLogger(__name__)


async def thread_fork(context: ThreadContext, params: ThreadForkParams) -> AsyncIterator[ThreadForkResponse]:
    """Copy a thread with its name, and its turns under their ids; one that runs is interrupted there."""
    if params.before_turn_id is not None and params.last_turn_id is not None:
        raise invalid_field("`beforeTurnId` cannot be combined with `lastTurnId`")
    if params.ephemeral and not params.exclude_turns:
        raise invalid_request("ephemeral thread/fork requires `excludeTurns: true`", "ephemeral")
    id, path = await _source(context, params)
    keeps = await _kept_lines(context, params, id, path)
    with threads.settings_errors():
        config = await reopened(context.config, context.reading.stored, path, overrides_of(params))
    origin = Fork(path, keeps, params.ephemeral)
    live, _ = await context.conversations.open(context.client, config, origin)
    async with live.opened():
        live.unloads = True
        live.opened_with(threads.API, params)
        await _copy_name(context, id, live)
        found = await context.reading.whole(live)
        if found is not None:
            live.subscriptions.so_far.ids = found.ids
        live.subscriptions.adapter(context.make_adapter, context.client)
        stored = () if found is None else found.turns
        turns = () if params.exclude_turns else await threads.all_turns(context, live, stored)
        thread = await threads.shown_thread(context, live, turns)
        response = ThreadForkResponse(thread=thread, **in_force(live.session.facts))
        tell_usage = await threads.usage_so_far(context, live, stored)
        yield response
        context.to_audience(live.id).notify(wire.THREAD_STARTED, thread=replace(thread, turns=()))
        context.subscribe(live)
    tell_usage()


async def thread_revert(
    context: ThreadContext, params: ThreadRevertParams
) -> AsyncIterator[ThreadRevertResponse]:
    """End the thread and load it again without the turn and what came behind it; files stay as they are."""
    before = context.loaded(params.thread_id)
    path = before.rollout_path
    if path is None:
        raise invalid_request("ephemeral threads do not support thread/revert", "ephemeral")
    cut = await _cut(context, before.id, path, params.before_turn_id)
    assert cut.keeps is not None
    if before.session.running and before.shared_with_others(context.client):
        raise invalid_request("turn in progress", "turn_in_progress")
    heard = context.to_audience(before.id)
    async with before.replaced():
        _notify_status(heard, before.id, ConversationStatus(Activity.NOT_LOADED))
        facts = before.session.facts
        origin = StoredRollout(
            path, Revert(cut.keeps, cut.turns, facts.settings), turns=True, keeps_usage=True
        )
        # It is opened for who opened it before: tools stay with the client that brought them.
        live, _ = await context.conversations.open(before.opened_by, facts.config, origin)
        # At once: others may begin an operation before it is opened.
        live.session.goes_on_from(before.session)
        async with live.opened():
            live.unloads = True
            live.opened_with(threads.API, before.options)
            live.subscriptions.adapter(context.make_adapter, context.client)
            _notify_status(heard, live.id, live.status)
            turns, items = await _last(context, live)
            yield ThreadRevertResponse(
                thread=await threads.shown_thread(context, live),
                turns_backwards_cursor=turns,
                items_backwards_cursor=items,
            )
            heard.notify(wire.THREAD_REVERTED, thread_id=live.id)
            live.goes_on_from(before)


async def _source(context: ThreadContext, params: ThreadForkParams) -> tuple[str, Path]:
    """Return the id and the file of what is copied."""
    if params.path is not None:
        path = context.config.home / params.path
        name = parse_rollout_name(path.name)
        return (params.thread_id if name is None else name.conversation_id), path
    id = parse_thread_id(params.thread_id)
    live = context.conversations.find(id)
    if live is None:
        return id, await threads.stored_path(context, id)
    if live.rollout_path is None:
        raise rollout_not_found(id)
    live.session.store()
    return id, live.rollout_path


async def _copy_name(context: ThreadContext, source: str, copy: LiveConversation) -> None:
    """Give the copy the name; where it cannot be written, the copy goes on without one."""
    name = await context.reading.stored.name(source)
    if name is None:
        return
    if copy.rollout_path is None:
        copy.unstored_name = name
        return
    try:
        await context.reading.stored.set_name(ConversationId(copy.id), name)
    except OSError as error:
        log.warning("the name of %s was not copied to %s: %s", source, copy.id, describe(error))


async def _kept_lines(context: ThreadContext, params: ThreadForkParams, id: str, path: Path) -> int | None:
    """Return how many lines of the file the copy has; None for all."""
    if params.before_turn_id is not None:
        return (await _cut(context, id, path, params.before_turn_id)).keeps
    if params.last_turn_id is None:
        return None
    running = context.reading.live.running(id)
    if running is not None and running.id == params.last_turn_id:
        text = f"lastTurnId '{running.id}' identifies an in-progress turn"
        raise invalid_request(text, "turn_in_progress", "lastTurnId")
    return (await _cut(context, id, path, params.last_turn_id, behind=True)).keeps


async def _cut(context: ThreadContext, id: str, path: Path, turn_id: str, *, behind: bool = False) -> TurnCut:
    return await context.reading.stored.find_cut(path, id, turn_id, behind=behind)


async def _last(context: ThreadContext, live: LiveConversation) -> tuple[str | None, str | None]:
    """Return cursors from which a client goes back through the turns and the items."""
    newest = PageRequest(limit=1, newest_first=True)
    thread = await context.reading.find(live.id)
    return await context.reading.read(
        thread,
        lambda history: (history.turns(newest).backwards_cursor, history.items(newest).backwards_cursor),
    )


def _notify_status(heard: ThreadNotifier, id: str, status: ConversationStatus) -> None:
    heard.notify(wire.THREAD_STATUS_CHANGED, thread_id=id, status=thread_status(status))


def routes(services: ThreadServices) -> tuple[Route, ...]:
    threads = services.threads.get()
    return (
        route(THREAD_FORK, thread_fork, threads),
        route(THREAD_REVERT, thread_revert, threads),
    )
