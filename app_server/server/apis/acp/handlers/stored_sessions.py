"""Handlers of requests about one stored session, which may be open or not: copying it, and naming it. Loaded with the
first such request.
"""

from __future__ import annotations

import logging
import os.path
from collections.abc import AsyncIterator
from pathlib import Path

from app_server.engine.context.permission_text import stored_profile
from app_server.engine.storage.pagination import TurnNotFound
from app_server.engine.support.engine_errors import describe
from app_server.engine.thread_origin import Fork
from app_server.server.apis.acp.handlers.sessions import (
    follow,
    open_session,
    planned,
    require_login,
    stored_session,
)
from app_server.server.apis.contexts import ConnectionContext
from app_server.server.apis.router import Route, route
from app_server.server.conversations.live import LiveConversation
from app_server_protocol.acp.requests import (
    FORK_SESSION,
    SET_TITLE,
    SetSessionTitleRequest,
    SetSessionTitleResponse,
    StoredSessionRequest,
)
from app_server_protocol.acp.sessions import NewSessionResponse
from app_server_protocol.ids import ConversationId
from app_server_protocol.rollout import TurnContextItem
from app_server_protocol.rpc_errors import internal_error, invalid_params

log = logging.getLogger(__name__)

LONGEST_TITLE = 200
"""Maximum length of a title, in characters; the rest of a longer one is left out."""


async def fork_session(
    context: ConnectionContext, params: StoredSessionRequest
) -> AsyncIterator[NewSessionResponse]:
    """Open a copy of a session with its title. A turn that runs goes on, and is not copied."""
    id, path = await stored_session(context, params.session_id)
    stored = context.stored.get()
    live, keeps = await context.conversations.find_settled(id), None
    if live is None:
        settings = await stored.last_settings(path)
    else:
        settings = _settings_of(live)
        keeps = await _finished_lines(context, live, path)
    plan = planned(context.config, params, settings)
    if not os.path.isdir(params.cwd):
        raise invalid_params("cwd is no directory", "cwd")
    await require_login(context)
    summary = await stored.summary(path, "")
    prepared, _ = await open_session(context, plan, Fork(path, keeps))
    await _continue_ids(context, prepared.live)
    session = prepared.begin(context)
    if title := summary.name or summary.preview:
        session.title_from(title)
    if summary.name is not None:
        try:
            await stored.set_name(ConversationId(session.id), summary.name)
        except OSError as error:
            log.warning("the title of %s was not copied to %s: %s", id, session.id, describe(error))
    yield NewSessionResponse(session_id=session.id, **session.options.shown())
    follow(context, session)


def _settings_of(live: LiveConversation) -> TurnContextItem:
    """Return the settings that the next turn of an open session would begin with."""
    now = live.session.facts.settings
    profile = stored_profile(now)
    return TurnContextItem.of(now, turn_id=None, active_permission_profile=profile, permission_profile=None)


async def _finished_lines(context: ConnectionContext, live: LiveConversation, path: Path) -> int | None:
    """Return the number of lines up to the last finished turn; None for all lines, if no turn runs."""
    running = live.session.turns.current_id
    if running is None:
        return None
    live.session.store()
    try:
        return (await context.stored.get().find_cut(path, live.id, running, behind=False)).keeps
    except TurnNotFound:  # nothing of it is stored yet
        return None


async def _continue_ids(context: ConnectionContext, live: LiveConversation) -> None:
    """Give later items of the copy other ids than those of the copied ones."""
    path = live.rollout_path
    assert path is not None
    whole = await context.stored.get().read_open(path, turns=True)
    if whole.turns is not None:
        live.subscriptions.live_turn.ids = whole.turns.ids


async def set_title(
    context: ConnectionContext, params: SetSessionTitleRequest
) -> AsyncIterator[SetSessionTitleResponse]:
    """Store the title of a session, which clients of all APIs are told as its name."""
    title = " ".join(params.title.split())[:LONGEST_TITLE].rstrip()
    if not title:
        raise invalid_params("title must be a non-empty string", "title")
    id, _ = await stored_session(context, params.session_id)
    try:
        await context.stored.get().set_name(id, title)
    except OSError as error:
        raise internal_error(f"the title could not be stored: {describe(error)}", "storage") from error
    yield SetSessionTitleResponse(title=title)
    context.conversations.renamed(id, title, context.client)


def routes(context: ConnectionContext) -> tuple[Route, ...]:
    """Return the routes of these requests."""
    return (route(FORK_SESSION, fork_session, context), route(SET_TITLE, set_title, context))
