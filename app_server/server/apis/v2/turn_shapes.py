"""Conversion of conversations and turns of the engine into threads and turns of this API; the caller chooses how much
of a turn is shown. Pure.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from msgspec.structs import replace

from app_server.engine.storage.pagination import ThreadSummary
from app_server.server.apis.v2.thread_items import review_text, thread_item
from app_server.server.apis.v2.thread_settings import LOCAL
from app_server.server.apis.v2.v2_errors import turn_error
from app_server_protocol.encoding import Json
from app_server_protocol.engine import events
from app_server_protocol.engine.events import EndedItem, TurnRecord
from app_server_protocol.engine.items import AgentMessage, ExitedReview, UserMessage
from app_server_protocol.engine.thread_settings import ThreadSettings
from app_server_protocol.ids import SessionOrigin
from app_server_protocol.responses import COMMENTARY
from app_server_protocol.v2 import thread as wire
from app_server_protocol.v2.item_parts import TextUserInput
from app_server_protocol.v2.items import ThreadItem, UserMessageThreadItem
from app_server_protocol.v2.turn import Turn, TurnItemsView, TurnStatus


def pending_turn(id: str) -> Turn:
    """Return a turn that was accepted and has not started, which is the response to `turn/start`."""
    return Turn(
        id=id,
        root_turn_id=id,
        items=(),
        items_view=TurnItemsView.NOT_LOADED,
        status=TurnStatus.IN_PROGRESS,
    )


def review_turn(id: str, target: str) -> Turn:
    """Return a review that was accepted, with its subject in place of the user's message."""
    words = UserMessageThreadItem(id=id, content=(TextUserInput(text=target),))
    return replace(pending_turn(id), items=(words,))


def shown_turn(record: TurnRecord, view: TurnItemsView, open_items: Sequence[ThreadItem] = ()) -> Turn:
    """Show a turn; `open_items` are those that have begun and not ended, which only the full view shows."""
    match view:
        case TurnItemsView.NOT_LOADED:
            return _turn(record, view, ())
        case TurnItemsView.SUMMARY:
            return _turn(record, view, [shown_item(ended) for ended in _summary(record)])
        case TurnItemsView.FULL:
            items = [shown_item(ended) for ended in _items(record)]
            return _turn(record, view, [*items, *open_items])


def ended_turn(record: TurnRecord) -> Turn:
    """Return the turn of `turn/completed`, which has the last message, if there was one."""
    last = last_message(record) if record.state is events.TurnStatus.COMPLETED else None
    if last is None:
        return _turn(record, TurnItemsView.NOT_LOADED, ())
    return _turn(record, TurnItemsView.SUMMARY, [shown_item(last)])


def last_message(record: TurnRecord) -> EndedItem | None:
    """Return the last message that was not interrupted, has text, and is more than a commentary."""
    for each in reversed(_items(record)):
        item = each.item
        if not each.cut and isinstance(item, AgentMessage) and item.text and item.phase != COMMENTARY:
            return each
    return None


def review_message(ended: EndedItem) -> EndedItem | None:
    """Return the result of a review, or that it had none, as a message after the item with the result: many clients
    show messages only. Its id is derived from the item's, so that it is the same live and read again.
    """
    review = ended.item
    if not isinstance(review, ExitedReview):
        return None
    message = AgentMessage(str(uuid.uuid5(uuid.NAMESPACE_OID, review.id)), (review_text(review.output),))
    return EndedItem(message, ended.ended_ms, ended.ended_ms)


def shown_items(ended: EndedItem) -> tuple[ThreadItem, ...]:
    """Return the item, and the message of a review behind it."""
    message = review_message(ended)
    return (shown_item(ended),) if message is None else (shown_item(ended), shown_item(message))


def shown_item(ended: EndedItem) -> ThreadItem:
    return thread_item(ended.item, ended.started_ms, ended.ended_ms)


def _items(record: TurnRecord) -> list[EndedItem]:
    """Return the items with the messages of reviews."""
    items: list[EndedItem] = []
    for each in record.items:
        items.append(each)
        if isinstance(each.item, ExitedReview) and (message := review_message(each)) is not None:
            items.append(message)
    return items


def _summary(record: TurnRecord) -> list[EndedItem]:
    first = next((each for each in record.items if isinstance(each.item, UserMessage)), None)
    return [each for each in (first, last_message(record)) if each is not None]


def _turn(record: TurnRecord, view: TurnItemsView, items: Sequence[ThreadItem]) -> Turn:
    return Turn(
        id=record.id,
        root_turn_id=record.id,
        items=tuple(items),
        items_view=view,
        status=TurnStatus[record.state.name],
        error=None if record.error is None else turn_error(record.error),
        started_at=_seconds(record.started_at),
        completed_at=_seconds(record.ended_at),
        duration_ms=None if record.seconds is None else round(record.seconds * 1000),
    )


def _seconds(at: float | None) -> int | None:
    return None if at is None else int(at)


MOST_BYTES = 8 * 1024 * 1024
"""Maximum size of the turns in one response, in bytes; earlier turns are sent without their items."""


def thread_view(
    summary: ThreadSummary,
    status: wire.ThreadStatus,
    turns: tuple[Turn, ...] = (),
    settings: ThreadSettings | None = None,
) -> wire.Thread:
    """Show a thread, with turns only where the client asked for them. `settings` are those of a thread that is loaded;
    None for any other.
    """
    git = summary.git
    environments = None
    if settings is not None:
        roots = (settings.cwd, *settings.workspace_roots)
        place = wire.ThreadEnvironment(environment_id=LOCAL, cwd=settings.cwd, runtime_workspace_roots=roots)
        environments = (place,)
    return wire.Thread(
        id=summary.id,
        session_id=summary.id,
        forked_from_id=summary.forked_from,
        preview=summary.preview,
        ephemeral=summary.ephemeral,
        project_id=None,
        history_mode=wire.ThreadHistoryMode.PAGINATED,
        model_provider=summary.provider,
        model=summary.model,
        reasoning_effort=summary.effort,
        created_at=summary.created_at,
        updated_at=summary.updated_at,
        recency_at=summary.updated_at,
        status=status,
        path=None if summary.path is None else str(summary.path),
        cwd=summary.cwd,
        cli_version=summary.cli_version,
        originator=summary.originator,
        source=session_source(summary.source),
        name=summary.name,
        git_info=wire.GitInfo(sha=git.commit_hash, branch=git.branch, origin_url=git.repository_url)
        if git
        else None,
        environments=environments,
        can_accept_direct_input=None if settings is None else True,
        turns=turns,
    )


def session_source(source: SessionOrigin | dict[str, Json]) -> wire.SessionSource:
    match source:
        case SessionOrigin.MCP:
            return wire.SessionOriginWord.APP_SERVER
        case SessionOrigin() as word:
            return wire.SessionOriginWord(word.value)
        case {"subagent": "review" | "compact" as kind}:
            return wire.SubAgentSessionSource(sub_agent=kind)
        case {"subagent": {"other": str(name)}}:
            return wire.SubAgentSessionSource(sub_agent=wire.OtherSubAgentSource(other=name))
        case _:
            return wire.SessionOriginWord.UNKNOWN


def whole_turns(records: Sequence[TurnRecord]) -> tuple[Turn, ...]:
    """Return all turns with their items, as far as one response can have them: the newest turns have theirs."""
    shown: list[Turn] = []
    size = 0
    for record in reversed(records):
        turn = shown_turn(record, TurnItemsView.FULL if size <= MOST_BYTES else TurnItemsView.NOT_LOADED)
        size += len(turn.to_json())
        if size > MOST_BYTES and turn.items and shown:
            turn = shown_turn(record, TurnItemsView.NOT_LOADED)
        shown.append(turn)
    return tuple(reversed(shown))
