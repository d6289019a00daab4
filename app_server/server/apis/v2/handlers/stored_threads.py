"""Changes to stored threads: archive, unarchive, delete, name, metadata; forking a thread, and reverting one to an
earlier turn.

A thread that is open here is ended before its file is moved or deleted: first its turn ends, then the thread, then the
response is sent, then the notification of the change.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

from app_server.engine.storage.pagination import TurnCut
from app_server.engine.storage.rollout_names import parse_rollout_name
from app_server.engine.support.engine_errors import ConversationError, RolloutBusy, RolloutNotFound, describe
from app_server.engine.thread_origin import Fork, Revert, StoredRollout
from app_server.server.apis.contexts import ConnectionContext, ConversationContext
from app_server.server.apis.router import Route, route, route_in
from app_server.server.apis.v2.handlers import threads
from app_server.server.apis.v2.open_threads import subscribe, thread_of, to_audience
from app_server.server.apis.v2.reopening import reopened
from app_server.server.apis.v2.shared_threads import thread_api
from app_server.server.apis.v2.thread_notifier import ThreadNotifier
from app_server.server.apis.v2.thread_reader import FoundThread, thread_reader
from app_server.server.apis.v2.thread_settings import overrides_of, thread_status
from app_server.server.apis.v2.v2_errors import parse_thread_id, rollout_not_found
from app_server.server.conversations.adapter import Activity, ConversationStatus
from app_server.server.conversations.live import LiveConversation
from app_server_protocol.ids import ConversationId
from app_server_protocol.rollout import GitInfo
from app_server_protocol.rpc_errors import internal_error, invalid_field, invalid_request
from app_server_protocol.v2 import thread as notices
from app_server_protocol.v2 import thread_store as wire
from app_server_protocol.v2.fields import InThread
from app_server_protocol.v2.thread_open import THREAD_FORK, ThreadForkParams, ThreadForkResponse
from app_server_protocol.values import replace

MOST_NAME = 4096
"""Maximum length of a name, or of a field of metadata, in characters: every list shows them."""

GIT_FIELDS = {"sha": "commit_hash", "branch": "branch", "origin_url": "repository_url"}


async def thread_archive(context: ConnectionContext, params: InThread) -> AsyncIterator[None]:
    id = parse_thread_id(params.thread_id)
    rollout, heard = await _stored(context, id), to_audience(context, id)
    with _failures(id, "archive"):
        await context.stored.get().require_archivable(id, rollout)
        await _end(context, id, rollout, heard)
        await context.stored.get().archive(id, rollout)
    yield
    heard.notify(notices.THREAD_ARCHIVED, thread_id=id)


async def thread_unarchive(context: ConnectionContext, params: InThread) -> AsyncIterator[wire.ShownThread]:
    id = parse_thread_id(params.thread_id)
    rollout = await context.stored.get().find_archived(id)
    if rollout is None:
        raise invalid_request(f"no archived rollout found for thread id {id}", "rollout_not_found")
    with _failures(id, "unarchive"):
        path = await context.stored.get().unarchive(rollout)
        thread = await thread_reader(context).shown(FoundThread(id, path, None))
    yield wire.ShownThread(thread=thread)
    to_audience(context, id).notify(notices.THREAD_UNARCHIVED, thread_id=id)


async def thread_delete(context: ConnectionContext, params: InThread) -> AsyncIterator[None]:
    id = parse_thread_id(params.thread_id)
    if _is_ephemeral(context, id):
        raise invalid_request(f"thread is not persisted and cannot be deleted: {id}", "ephemeral")
    rollout, heard = await _stored(context, id, archived=True), to_audience(context, id)
    with _failures(id, "delete"):
        await _end(context, id, rollout, heard)
        await context.stored.get().delete(id, rollout)
    yield
    heard.notify(notices.THREAD_DELETED, thread_id=id)


async def thread_name_set(
    context: ConnectionContext, params: wire.ThreadSetNameParams
) -> AsyncIterator[None]:
    id, name = parse_thread_id(params.thread_id), params.name.strip()
    if not name:
        raise invalid_field("thread name must not be empty", "name")
    _require_short(name, "name", "thread name")
    _require_stored(context, id)
    await _stored(context, id)
    with _failures(id, "name"):
        await context.stored.get().set_name(id, name)
    yield
    context.conversations.renamed(id, name, context.client)


async def thread_metadata_update(
    context: ConnectionContext, params: wire.ThreadMetadataUpdateParams
) -> wire.ShownThread:
    id, update = parse_thread_id(params.thread_id), params.git_info
    if update is None:
        raise invalid_field("thread metadata update must include at least one field")
    changes = _git_changes(update)
    _require_stored(context, id)
    await _stored(context, id, archived=True)
    thread = await thread_reader(context).find(id)
    if thread.path is None:
        raise rollout_not_found(id)
    before = (await thread_reader(context).summary(thread)).git or GitInfo()
    with _failures(id, "change"):
        await context.stored.get().set_revision(id, replace(before, **changes))
    return wire.ShownThread(thread=await thread_reader(context).shown(thread))


def _is_ephemeral(context: ConnectionContext, id: ConversationId) -> bool:
    loaded = thread_reader(context).live.summary(id)
    return loaded is not None and loaded.ephemeral


async def _end(context: ConnectionContext, id: ConversationId, rollout: Path, heard: ThreadNotifier) -> None:
    """End the thread if it is open here. Raises RolloutBusy if another server has it open."""
    if context.conversations.find(id) is None:
        await context.stored.get().require_unused(rollout)
    elif await context.conversations.shut_down(id):
        heard.notify(notices.THREAD_STATUS_CHANGED, thread_id=id, status=notices.NotLoadedThreadStatus())


def _git_changes(update: wire.ThreadMetadataGitInfoUpdateParams) -> dict[str, str | None]:
    """Return the fields that the request names; null clears one. Raises RpcError."""
    changes: dict[str, str | None] = {}
    for name, stored in GIT_FIELDS.items():
        if name not in update.model_fields_set:
            continue
        value: str | None = getattr(update, name)
        shown = "gitInfo.originUrl" if name == "origin_url" else f"gitInfo.{name}"
        if value is not None:
            value = value.strip()
            if not value:
                raise invalid_field(f"{shown} must not be empty", shown)
            _require_short(value, shown, shown)
        changes[stored] = value
    if not changes:
        raise invalid_field("gitInfo must include at least one field", "gitInfo")
    return changes


def _require_short(text: str, field: str, what: str) -> None:
    if len(text) > MOST_NAME:
        raise invalid_field(f"{what} must be at most {MOST_NAME} characters long", field)


def _require_stored(context: ConnectionContext, id: ConversationId) -> None:
    if _is_ephemeral(context, id):
        raise invalid_request(f"ephemeral thread does not support metadata updates: {id}", "ephemeral")


async def _stored(context: ConnectionContext, id: ConversationId, *, archived: bool = False) -> Path:
    """Return the path where the thread is stored; a thread in the archive only if `archived` is True.
    Raises RpcError.
    """
    try:
        return await context.stored.get().find(id, archived=archived)
    except RolloutNotFound:
        raise rollout_not_found(id) from None


@contextmanager
def _failures(id: ConversationId, verb: str) -> Iterator[None]:
    """Convert errors of the file system into errors of this API."""
    try:
        yield
    except RolloutBusy:
        raise invalid_request(f"thread {id} already has an active writer", "busy") from None
    except ConversationError as error:
        raise internal_error(str(error), "storage") from error
    except OSError as error:
        raise internal_error(f"failed to {verb} thread {id}: {describe(error)}", "storage") from error


log = logging.getLogger(__name__)


async def thread_fork(
    context: ConnectionContext, params: ThreadForkParams
) -> AsyncIterator[ThreadForkResponse]:
    """Copy a thread with its name, and its turns under their ids; a running turn is interrupted in the copy."""
    if params.before_turn_id is not None and params.last_turn_id is not None:
        raise invalid_field("`beforeTurnId` cannot be combined with `lastTurnId`")
    if params.ephemeral and not params.exclude_turns:
        raise invalid_request("ephemeral thread/fork requires `excludeTurns: true`", "ephemeral")
    context.require_existing_folder(params.cwd)
    id, path = await _source(context, params)
    keeps = await _kept_lines(context, params, id, path)
    with threads.settings_errors():
        config = await reopened(context.config, context.stored.get(), path, overrides_of(params))
    origin = Fork(path, keeps, params.ephemeral)
    live, _ = await context.conversations.open(context.client, config, origin)
    async with live.opened():
        live.auto_unload = True
        await _copy_name(context, id, live)
        found = await thread_reader(context).whole(live)
        if found is not None:
            live.subscriptions.live_turn.ids = found.ids
        copy = ConversationContext(context, live, thread_api(context))
        live.subscriptions.adapter(copy.api, context.client)
        stored = () if found is None else found.turns
        turns = () if params.exclude_turns else await threads.stored_turns(copy, stored)
        shown = await threads.shown_thread(copy, turns)
        response = ThreadForkResponse(thread=shown, **threads.in_force(live.session.facts))
        usage_turn = await threads.turn_of_usage(copy, stored)
        yield response
        to_audience(context, live.id).notify(notices.THREAD_STARTED, thread=replace(shown, turns=()))
        subscribe(copy)
        threads.tell_usage(copy, usage_turn)


async def thread_revert(
    thread: ConversationContext, params: wire.ThreadRevertParams
) -> AsyncIterator[wire.ThreadRevertResponse]:
    """End the thread, and load it again without the turn and all later ones; changed files are not restored. Raises
    NotStored if that cannot be stored; then the thread is loaded as it was.
    """
    context, before = thread.connection, thread.live
    path = before.rollout_path
    if path is None:
        raise invalid_request("ephemeral threads do not support thread/revert", "ephemeral")
    cut = await _cut(context, before.id, path, params.before_turn_id)
    assert cut.keeps is not None
    if before.session.running and before.shared_with_others(context.client):
        raise invalid_request("turn in progress", "turn_in_progress")
    before.session.require_stored()
    heard = to_audience(context, before.id)
    async with before.replaced():
        _notify_status(heard, before.id, ConversationStatus(Activity.NOT_LOADED))
        facts = before.session.facts
        origin = StoredRollout(
            path, Revert(cut.keeps, cut.turns, facts.settings), turns=True, keeps_usage=True
        )
        # The thread is opened on behalf of its former owner: tools stay with the client that brought them.
        live, opened = await context.conversations.open(before.opened_by, facts.config, origin)
        # This is done at once: another client may begin an operation before the thread is opened.
        live.session.take_over_from(before.session)
        after = ConversationContext(context, live, thread.api)
        async with live.opened():
            live.auto_unload = True
            live.subscriptions.adapter(after.api, context.client)
            _notify_status(heard, live.id, live.status)
            if opened.not_reverted is None:
                turns, items = (await threads.newest_ids(after)).cursors()
                yield wire.ThreadRevertResponse(
                    thread=await threads.shown_thread(after),
                    turns_backwards_cursor=turns,
                    items_backwards_cursor=items,
                )
                heard.notify(notices.THREAD_REVERTED, thread_id=live.id)
            live.take_over_from(before)
    if opened.not_reverted is not None:
        raise opened.not_reverted


async def _source(context: ConnectionContext, params: ThreadForkParams) -> tuple[str, Path]:
    """Return the id and the file of the thread that is copied."""
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


async def _copy_name(context: ConnectionContext, source: str, copy: LiveConversation) -> None:
    """Give the copy the name; if the name cannot be written, the copy has none."""
    name = await context.stored.get().name(source)
    if name is None:
        return
    if copy.rollout_path is None:
        copy.unstored_name = name
        return
    try:
        await context.stored.get().set_name(ConversationId(copy.id), name)
    except OSError as error:
        log.warning("the name of %s was not copied to %s: %s", source, copy.id, describe(error))


async def _kept_lines(
    context: ConnectionContext, params: ThreadForkParams, id: str, path: Path
) -> int | None:
    """Return the number of lines of the file that the copy has; None for all lines."""
    if params.before_turn_id is not None:
        return (await _cut(context, id, path, params.before_turn_id)).keeps
    if params.last_turn_id is None:
        return None
    running = thread_reader(context).live.running(id)
    if running is not None and running.id == params.last_turn_id:
        text = f"lastTurnId '{running.id}' identifies an in-progress turn"
        raise invalid_request(text, "turn_in_progress", "lastTurnId")
    return (await _cut(context, id, path, params.last_turn_id, behind=True)).keeps


async def _cut(
    context: ConnectionContext, id: str, path: Path, turn_id: str, *, behind: bool = False
) -> TurnCut:
    return await context.stored.get().find_cut(path, id, turn_id, behind=behind)


def _notify_status(heard: ThreadNotifier, id: str, status: ConversationStatus) -> None:
    heard.notify(notices.THREAD_STATUS_CHANGED, thread_id=id, status=thread_status(status))


def routes(context: ConnectionContext) -> tuple[Route, ...]:
    return (
        route(wire.THREAD_ARCHIVE, thread_archive, context),
        route(wire.THREAD_UNARCHIVE, thread_unarchive, context),
        route(wire.THREAD_DELETE, thread_delete, context),
        route(wire.THREAD_NAME_SET, thread_name_set, context),
        route(wire.THREAD_METADATA_UPDATE, thread_metadata_update, context),
        route(THREAD_FORK, thread_fork, context),
        route_in(wire.THREAD_REVERT, thread_revert, thread_of(context)),
    )
