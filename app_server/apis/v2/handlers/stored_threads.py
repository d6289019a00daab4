"""Changes to stored threads: archive, unarchive, delete, name, metadata.

A thread that is open here is ended before its file is moved or deleted: its turn first, then the thread, then the
response, then the notification of what happened to it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

from app_server.apis.router import Route, route
from app_server.apis.v2.errors import parse_thread_id, rollout_not_found
from app_server.apis.v2.loaded_threads import FoundThread
from app_server.apis.v2.services import ThreadContext, ThreadNotifier, ThreadServices
from app_server.core.errors import ConversationError, RolloutBusy, RolloutNotFound, describe
from app_server.rpc.errors import internal_error, invalid_field, invalid_request
from protocol.ids import ConversationId
from protocol.rollout import GitInfo
from protocol.structs import replace
from protocol.v2 import thread as notices
from protocol.v2 import thread_store as wire
from protocol.v2.fields import InThread

MOST_NAME = 4096
"""Characters of a name, or of a field of metadata: every list shows them."""

GIT_FIELDS = {"sha": "commit_hash", "branch": "branch", "origin_url": "repository_url"}


async def thread_archive(context: ThreadContext, params: InThread) -> AsyncIterator[None]:
    id = parse_thread_id(params.thread_id)
    rollout, heard = await _stored(context, id), context.to_audience(id)
    with _failures(id, "archive"):
        await context.reading.stored.require_archivable(id, rollout)
        await _end(context, id, rollout, heard)
        await context.reading.stored.archive(id, rollout)
    yield
    heard.notify(notices.THREAD_ARCHIVED, thread_id=id)


async def thread_unarchive(context: ThreadContext, params: InThread) -> AsyncIterator[wire.ShownThread]:
    id = parse_thread_id(params.thread_id)
    rollout = await context.reading.stored.find_archived(id)
    if rollout is None:
        raise invalid_request(f"no archived rollout found for thread id {id}", "rollout_not_found")
    with _failures(id, "unarchive"):
        path = await context.reading.stored.unarchive(rollout)
        thread = await context.reading.shown(FoundThread(id, path, None))
    yield wire.ShownThread(thread=thread)
    context.to_audience(id).notify(notices.THREAD_UNARCHIVED, thread_id=id)


async def thread_delete(context: ThreadContext, params: InThread) -> AsyncIterator[None]:
    id = parse_thread_id(params.thread_id)
    if _is_ephemeral(context, id):
        raise invalid_request(f"thread is not persisted and cannot be deleted: {id}", "ephemeral")
    rollout, heard = await _stored(context, id, archived=True), context.to_audience(id)
    with _failures(id, "delete"):
        await _end(context, id, rollout, heard)
        await context.reading.stored.delete(id, rollout)
    yield
    heard.notify(notices.THREAD_DELETED, thread_id=id)


async def thread_name_set(context: ThreadContext, params: wire.ThreadSetNameParams) -> AsyncIterator[None]:
    id, name = parse_thread_id(params.thread_id), params.name.strip()
    if not name:
        raise invalid_field("thread name must not be empty", "name")
    _require_short(name, "name", "thread name")
    _require_stored(context, id)
    await _stored(context, id)
    with _failures(id, "name"):
        await context.reading.stored.set_name(id, name)
    yield
    context.to_audience(id).notify(notices.THREAD_NAME_UPDATED, thread_id=id, thread_name=name)


async def thread_metadata_update(
    context: ThreadContext, params: wire.ThreadMetadataUpdateParams
) -> wire.ShownThread:
    id, update = parse_thread_id(params.thread_id), params.git_info
    if update is None:
        raise invalid_field("thread metadata update must include at least one field")
    changes = _git_changes(update)
    _require_stored(context, id)
    await _stored(context, id, archived=True)
    thread = await context.reading.find(id)
    if thread.path is None:
        raise rollout_not_found(id)
    before = (await context.reading.summary(thread)).git or GitInfo()
    with _failures(id, "change"):
        await context.reading.stored.set_revision(id, replace(before, **changes))
    return wire.ShownThread(thread=await context.reading.shown(thread))


def _is_ephemeral(context: ThreadContext, id: ConversationId) -> bool:
    loaded = context.reading.live.summary(id)
    return loaded is not None and loaded.ephemeral


async def _end(context: ThreadContext, id: ConversationId, rollout: Path, heard: ThreadNotifier) -> None:
    """End the thread if it is open here. Raises RolloutBusy if it is open in another server."""
    if context.conversations.find(id) is None:
        await context.reading.stored.require_unused(rollout)
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


def _require_stored(context: ThreadContext, id: ConversationId) -> None:
    if _is_ephemeral(context, id):
        raise invalid_request(f"ephemeral thread does not support metadata updates: {id}", "ephemeral")


async def _stored(context: ThreadContext, id: ConversationId, *, archived: bool = False) -> Path:
    """Return where the thread is stored; one in the archive only if that is asked for too. Raises RpcError."""
    try:
        return await context.reading.stored.find(id, archived=archived)
    except RolloutNotFound:
        raise rollout_not_found(id) from None


@contextmanager
def _failures(id: ConversationId, verb: str) -> Iterator[None]:
    """Raise what the file system refuses as errors of this API."""
    try:
        yield
    except RolloutBusy:
        raise invalid_request(f"thread {id} already has an active writer", "busy") from None
    except ConversationError as error:
        raise internal_error(str(error), "storage") from error
    except OSError as error:
        raise internal_error(f"failed to {verb} thread {id}: {describe(error)}", "storage") from error


def routes(services: ThreadServices) -> tuple[Route, ...]:
    threads = services.threads.get()
    return (
        route(wire.THREAD_ARCHIVE, thread_archive, threads),
        route(wire.THREAD_UNARCHIVE, thread_unarchive, threads),
        route(wire.THREAD_DELETE, thread_delete, threads),
        route(wire.THREAD_NAME_SET, thread_name_set, threads),
        route(wire.THREAD_METADATA_UPDATE, thread_metadata_update, threads),
    )
