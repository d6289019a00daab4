"""Resuming, listing, describing and archiving stored conversations."""

from __future__ import annotations

from pathlib import Path

from app_server.engine.storage.pagination import InvalidCursor, ListRequest, ThreadFilter, ThreadSummary
from app_server.engine.support.engine_errors import ArchiveRefused, ConversationError
from app_server.engine.thread_origin import Origin, StoredRollout, SuppliedHistory
from app_server.server.apis.contexts import ConnectionContext, ConversationContext
from app_server.server.apis.router import Route, route
from app_server.server.apis.v1.handlers.conversations import overrides
from app_server.server.apis.v1.v1_adapter import CONVERSATIONS
from app_server.server.conversations.live import LiveConversation
from app_server_protocol.engine.items import Item, Reasoning
from app_server_protocol.engine.legacy import begin_events, legacy_events
from app_server_protocol.events.msg import EventMsg
from app_server_protocol.ids import ConversationId, SessionOrigin
from app_server_protocol.parse import read
from app_server_protocol.policy import known_effort
from app_server_protocol.rollout import SubagentSessionSource
from app_server_protocol.rpc_errors import internal_error, invalid_request
from app_server_protocol.v1 import stored as wire
from app_server_protocol.values import replace

LISTED = frozenset({SessionOrigin.CLI.value, SessionOrigin.VSCODE.value})
"""Origins of conversations that are listed: interactive ones. Conversations of scripts and sub-agents are available by
path or id only.
"""


async def resume_conversation(
    context: ConnectionContext, params: wire.ResumeConversationParams
) -> wire.ResumeConversationResponse:
    """Open a stored conversation, or join one that other clients have open. What follows the response waits for the
    client's first listener.
    """
    config = context.config.load(overrides(params.overrides) if params.overrides else None)
    origin, live = await _origin(context, params), None
    if isinstance(origin, StoredRollout):
        live = await context.conversations.find_shared(context.client, origin.path)
    if live is not None:
        if params.overrides is not None:
            joined = ConversationContext(context, live, CONVERSATIONS)
            joined.change_settings(overrides(params.overrides), config)
        log, messages = await live.session.facts.history_metadata(), await _join(context, live)
    else:
        live, opened = await context.conversations.open(context.client, config, origin)
        log = await live.session.facts.history_metadata()
        messages = opened.stored.messages if opened.stored else ()
    _notify_configured(context, live, messages, *log)
    return wire.ResumeConversationResponse(
        conversation_id=live.session.id,
        model=live.session.facts.settings.model,
        initial_messages=messages,
        rollout_path=str(live.rollout_path),
    )


async def _join(context: ConnectionContext, live: LiveConversation) -> tuple[EventMsg, ...]:
    """Join a conversation that other clients have open. Return its messages at this moment; the response is made of
    them without a further wait.
    """
    live.subscriptions.adapter(CONVERSATIONS, context.client)
    since = live.subscriptions.live_turn.position
    messages, known = list[EventMsg](), set[str]()
    if live.rollout_path is not None:
        read = await context.stored.get().read_open(live.rollout_path, messages=True, turns=True)
        messages += read.messages
        known |= {each.item.id for each in read.turns.items} if read.turns is not None else set()
    for ended in live.catch_up().items_since(since):
        if ended.item.id not in known and not ended.cut:
            messages += _messages_of(ended.item)
    live.join_later(context.client, CONVERSATIONS)
    return tuple(messages)


def _messages_of(item: Item) -> list[EventMsg]:
    """Return the events that show an item which has ended, as if it was read from the disk."""
    raw_reasoning = isinstance(item, Reasoning) and item.show_content
    return [*begin_events(item), *legacy_events(item, raw_reasoning=raw_reasoning)]


async def _origin(context: ConnectionContext, params: wire.ResumeConversationParams) -> Origin:
    if params.history:
        return SuppliedHistory(params.history)
    if params.history is None and params.path is not None:
        return _stored(context.config.cwd / params.path)
    if params.history is None and params.conversation_id is not None:
        path = await context.stored.get().find(params.conversation_id, archived=False)
        return _stored(path)
    raise invalid_request(
        "either path, conversation id or non empty history must be provided", "nothing_to_resume"
    )


def _stored(path: Path) -> StoredRollout:
    """Return a stored conversation as clients of this API continue it: they cannot give a system prompt."""
    return StoredRollout(path, messages=True, keeps_system_prompt=True)


def _notify_configured(
    context: ConnectionContext,
    live: LiveConversation,
    messages: tuple[EventMsg, ...],
    log_id: int,
    count: int,
) -> None:
    facts = live.session.facts
    context.notify(
        wire.SESSION_CONFIGURED,
        session_id=live.session.id,
        model=facts.config.thread.model,
        reasoning_effort=known_effort(facts.config.thread.effort),
        history_log_id=log_id,
        history_entry_count=count,
        initial_messages=messages,
        rollout_path=str(live.rollout_path),
    )


async def list_stored(
    context: ConnectionContext, params: wire.ListConversationsParams
) -> wire.ListConversationsResponse:
    provider = context.config.load().provider.id
    wanted = params.model_providers
    chosen = frozenset((provider,)) if wanted is None else frozenset(wanted) or None
    request = ListRequest(
        filter=ThreadFilter(sources=LISTED, default_provider=provider, providers=chosen),
        limit=params.page_size,
        cursor=params.cursor,
    )
    stored = context.stored.get()
    try:
        page = await stored.list(request)
    except InvalidCursor:
        page = await stored.list(replace(request, cursor=None))
    return wire.ListConversationsResponse(items=tuple(map(_summary, page.rows)), next_cursor=page.next_cursor)


async def get_summary(
    context: ConnectionContext, params: wire.GetConversationSummaryParams
) -> wire.GetConversationSummaryResponse:
    provider, stored = context.config.load().provider.id, context.stored.get()
    if params.rollout_path is not None:
        path = context.config.home / params.rollout_path
    else:
        assert params.conversation_id is not None
        path = await stored.find(params.conversation_id, archived=False)
    return wire.GetConversationSummaryResponse(summary=_summary(await stored.summary(path, provider)))


async def archive_conversation(context: ConnectionContext, params: wire.ArchiveConversationParams) -> None:
    """Check that the path belongs to the conversation, shut the conversation down if it is open, then archive it."""
    stored, id, path = context.stored.get(), params.conversation_id, Path(params.rollout_path)
    try:
        await stored.require_archivable(id, path)
        await context.conversations.shut_down(id)
        await stored.archive(id, path)
    except ArchiveRefused:
        raise
    except ConversationError as error:
        raise internal_error(str(error), "archive") from error


def _summary(stored: ThreadSummary) -> wire.ConversationSummary:
    git = stored.git
    return wire.ConversationSummary(
        conversation_id=ConversationId(stored.id),
        path=str(stored.path),
        preview=stored.preview,
        timestamp=stored.timestamp,
        model_provider=stored.provider,
        cwd=stored.cwd,
        cli_version=stored.cli_version,
        source=stored.source
        if isinstance(stored.source, SessionOrigin)
        else read(SubagentSessionSource, stored.source),
        git_info=wire.ConversationGitInfo(
            sha=git.commit_hash, branch=git.branch, origin_url=git.repository_url
        )
        if git
        else None,
    )


def routes(context: ConnectionContext) -> tuple[Route, ...]:
    return (
        route(wire.RESUME_CONVERSATION, resume_conversation, context),
        route(wire.LIST_CONVERSATIONS, list_stored, context),
        route(wire.GET_CONVERSATION_SUMMARY, get_summary, context),
        route(wire.ARCHIVE_CONVERSATION, archive_conversation, context),
    )
