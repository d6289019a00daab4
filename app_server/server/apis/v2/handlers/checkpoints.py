"""Checkpoints of an open thread: its turns with what they changed in files, previews of restores, and restores.

A restore of files and conversation puts the files back first: if that is refused, the conversation stays, too.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from typing import TYPE_CHECKING

from app_server.engine.session.rewind import TURN_RUNS, words_of
from app_server.engine.storage.pagination import PageRequest, parse_cursor
from app_server.server.apis.contexts import ConnectionContext, ConversationContext
from app_server.server.apis.router import Route, route_in
from app_server.server.apis.v2.handlers.stored_threads import thread_revert
from app_server.server.apis.v2.open_threads import thread_of
from app_server.server.apis.v2.thread_reader import thread_reader
from app_server_protocol.engine.events import TurnRecord
from app_server_protocol.rpc_errors import invalid_field, invalid_request
from app_server_protocol.v2 import checkpoints as wire
from app_server_protocol.v2.thread_store import ThreadRevertParams

if TYPE_CHECKING:
    from app_server.engine.checkpoints.history import RecordedChanges, Span
    from app_server.engine.checkpoints.plan import PlannedFile

NOTHING = "0" * 32
"""Token of a preview in which no change of a file is recorded."""


async def checkpoint_list(
    thread: ConversationContext, params: wire.ThreadCheckpointListParams
) -> wire.ThreadCheckpointListResponse:
    recorded = await thread.session.rewinds.recorded()
    anchor = None if params.cursor is None else parse_cursor(params.cursor)
    request = PageRequest(anchor=anchor, limit=params.limit, newest_first=True)
    reader = thread_reader(thread.connection)
    page = await reader.read(await reader.find(thread.id), lambda history: history.turns(request))
    restores = (
        () if params.cursor is not None else [each for each in recorded.spans if each.target is not None]
    )
    return wire.ThreadCheckpointListResponse(
        data=tuple(_checkpoint(turn, recorded) for turn in page.rows),
        restores=tuple(_restore(each) for each in reversed(restores)),
        next_cursor=page.next_cursor,
    )


async def checkpoint_preview(
    thread: ConversationContext, params: wire.ThreadCheckpointPreviewParams
) -> wire.ThreadCheckpointPreviewResponse:
    turns, ids = await _turns(thread, params)
    if params.restore == "conversation":
        return wire.ThreadCheckpointPreviewResponse(files=(), turns=turns, token=NOTHING)
    rewinds = thread.session.rewinds
    preview = await rewinds.preview(ids, uncertain=params.uncertain)
    if preview is None:
        return wire.ThreadCheckpointPreviewResponse(files=(), turns=turns, token=NOTHING)
    diffs = await rewinds.diffs(preview)
    return wire.ThreadCheckpointPreviewResponse(
        files=_files(preview.plan.files, diffs), turns=turns, token=preview.plan.token
    )


async def checkpoint_restore(
    thread: ConversationContext, params: wire.ThreadCheckpointRestoreParams
) -> AsyncIterator[wire.ThreadCheckpointRestoreResponse]:
    turns, ids = await _turns(thread, params)
    if thread.session.running:
        raise invalid_request(TURN_RUNS, "turn_in_progress")
    if params.restore != "files":
        thread.session.require_stored()
    files: tuple[wire.ThreadCheckpointFile, ...] = ()
    undo_id = None
    if params.restore != "conversation":
        rewinds = thread.session.rewinds
        await _require_idle(thread)
        preview = await rewinds.preview(ids, uncertain=params.uncertain)
        if preview is not None:
            done = await rewinds.restore(
                preview.spans[0].id,
                token=params.token,
                conflicts=params.conflicts,
                uncertain=params.uncertain,
            )
            files, undo_id = _files(done.files, {}, done.failed), done.undo_id
    if params.restore == "files":
        yield wire.ThreadCheckpointRestoreResponse(files=files, turns=(), undo_turn_id=undo_id)
        return
    revert = ThreadRevertParams(thread_id=params.thread_id, before_turn_id=params.before_turn_id)
    async for reverted in thread_revert(thread, revert):
        yield wire.ThreadCheckpointRestoreResponse(
            files=files, turns=turns, undo_turn_id=undo_id, thread=reverted.thread
        )


async def _turns(
    thread: ConversationContext, params: wire.ThreadCheckpointPreviewParams
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the turns that leave the conversation, and the ids of these, or of the restore, before which the files go
    back. Raises RpcError.
    """
    recorded = await thread.session.rewinds.recorded()
    index = recorded.index_of(params.before_turn_id)
    if index is not None and recorded.spans[index].target is not None:
        if params.restore != "files":
            text = '`beforeTurnId` names a restore, which is undone with `restore: "files"`'
            raise invalid_field(text, "restore")
        return (), (params.before_turn_id,)
    reader = thread_reader(thread.connection)
    ids = await reader.read(
        await reader.find(thread.id), lambda history: history.ids_from(params.before_turn_id)
    )
    if not ids and index is None:
        raise invalid_field(f"no turn or restore of this thread: {params.before_turn_id}", "beforeTurnId")
    if params.restore != "files" and thread.live.rollout_path is None:
        raise invalid_request("ephemeral threads do not go back in their conversation", "ephemeral")
    return (() if params.restore == "files" else ids), ids or (params.before_turn_id,)


async def _require_idle(thread: ConversationContext) -> None:
    """Check that no other thread works in the roots of this one. Raises RpcError."""
    for other in thread.connection.conversations.all():
        if other.id != thread.id and other.session.running:
            root = await thread.session.rewinds.shared_root(other.session.facts.settings.cwd)
            if root is not None:
                text = f"nothing was restored: thread {other.id} works in {root}"
                raise invalid_request(text, "turn_in_progress")


def _checkpoint(turn: TurnRecord, recorded: RecordedChanges) -> wire.ThreadCheckpoint:
    index = recorded.index_of(turn.id)
    span = None if index is None else recorded.spans[index]
    first = {each.path: each for each in reversed(() if span is None else span.changes)}
    covered = sum(each.before is None or len(each.before.digest) >= 40 for each in first.values())
    return wire.ThreadCheckpoint(
        turn_id=turn.id,
        words=words_of(turn) or ("" if span is None else span.words),
        at=None if span is None else int(span.at),
        files_changed=len(first),
        files_covered=covered,
        uncovered=() if span is None else span.uncovered,
    )


def _restore(span: Span) -> wire.ThreadRestore:
    return wire.ThreadRestore(
        undo_turn_id=span.id,
        before_turn_id=span.target or "",
        at=int(span.at),
        files_changed=len(span.changes),
        complete=span.finished,
    )


def _files(
    files: Iterable[PlannedFile], diffs: Mapping[str, str], failed: Mapping[str, str] | None = None
) -> tuple[wire.ThreadCheckpointFile, ...]:
    return tuple(
        wire.ThreadCheckpointFile(
            path=each.path.encode("utf-8", "replace").decode(),
            action=each.action.value,
            by=each.by,
            diff=diffs.get(each.path),
            reason=None if failed is None else failed.get(each.path),
        )
        for each in files
    )


def routes(context: ConnectionContext) -> tuple[Route, ...]:
    thread = thread_of(context)
    return (
        route_in(wire.THREAD_CHECKPOINT_LIST, checkpoint_list, thread),
        route_in(wire.THREAD_CHECKPOINT_PREVIEW, checkpoint_preview, thread),
        route_in(wire.THREAD_CHECKPOINT_RESTORE, checkpoint_restore, thread),
    )
