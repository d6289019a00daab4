"""Handlers of all requests but new sessions and prompts: the handshake, logins, loading and listing stored sessions,
closing and deleting sessions, modes and options. Loaded with the first such request.
"""

from __future__ import annotations

import os.path
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime

import anyio
from msgspec import Struct

from app_server.engine.auth.accounts import Accounts
from app_server.engine.auth.credentials import LoginOutcome
from app_server.engine.storage.pagination import InvalidCursor, ListRequest, ThreadFilter, ThreadSummary
from app_server.engine.storage.rollout_reader import StoredConversation
from app_server.engine.storage.turn_fold import ItemIds
from app_server.engine.support.engine_errors import RolloutNotFound
from app_server.engine.thread_origin import StoredRollout
from app_server.server.apis.acp.acp_adapter import Replay
from app_server.server.apis.acp.acp_client import API_KEY, auth_methods, initialize_fields
from app_server.server.apis.acp.acp_errors import login_needed, session_not_found
from app_server.server.apis.acp.acp_session import AcpSession, sessions_of
from app_server.server.apis.acp.formatting import one_line
from app_server.server.apis.acp.handlers.sessions import (
    PreparedSession,
    accept_client,
    follow,
    join_session,
    lacks_login,
    offered_logins,
    open_session,
    planned,
    require_login,
    stored_session,
)
from app_server.server.apis.acp.inbound import system_prompt
from app_server.server.apis.contexts import ConnectionContext
from app_server.server.apis.router import Route, route
from app_server.server.conversations.live import LiveConversation
from app_server.server.conversations.live_turn import Position
from app_server_protocol.acp.requests import (
    AUTHENTICATE,
    CLOSE_SESSION,
    DELETE_SESSION,
    INITIALIZE,
    LIST_SESSIONS,
    LOAD_SESSION,
    LOGOUT,
    RESUME_SESSION,
    SET_CONFIG_OPTION,
    SET_MODE,
    AgentInitializeRequest,
    AgentInitializeResponse,
    AuthenticateRequest,
    ListSessionsRequest,
    ListSessionsResponse,
    OfSession,
    OpenedSession,
    SessionInfo,
    SetSessionConfigOptionRequest,
    SetSessionConfigOptionResponse,
    SetSessionModeRequest,
    StoredSessionRequest,
)
from app_server_protocol.acp.updates import SessionInfoUpdate
from app_server_protocol.ids import SessionOrigin, parse_conversation_id
from app_server_protocol.method_table import NoFields
from app_server_protocol.rpc_errors import invalid_params
from app_server_protocol.values import replace


async def initialize(context: ConnectionContext, params: AgentInitializeRequest) -> AgentInitializeResponse:
    accept_client(context, params.model_extra or {})
    return AgentInitializeResponse.model_validate(initialize_fields(offered_logins(context)))


async def authenticate(context: ConnectionContext, params: AuthenticateRequest) -> None:
    """Answer once the login is complete; at once if the provider needs no login."""
    offered = [method["id"] for method in auth_methods(context.config.environment, needs_login=True)]
    if params.method_id not in offered:
        raise invalid_params(f"unknown method of authentication: {params.method_id[:100]}", "methodId")
    if not await lacks_login(context):
        return
    if params.method_id == API_KEY:
        raise login_needed("There is no CODEX_API_KEY and no OPENAI_API_KEY in the server's environment")
    await _browser_login(context.accounts)


async def logout(context: ConnectionContext, params: NoFields) -> None:
    await context.accounts.logout()


async def _browser_login(accounts: Accounts) -> None:
    came, outcomes = anyio.Event(), list[LoginOutcome]()

    def take(outcome: LoginOutcome) -> None:
        outcomes.append(outcome)
        came.set()

    login = await accounts.open_login()
    accounts.await_in_background(login, take)
    try:
        if not await login.flow.open_browser():
            raise login_needed("No browser could be opened; log in with an API key")
        await came.wait()
    finally:
        accounts.cancel(login.id)
    if not outcomes[0].success:
        raise login_needed(f"The login failed: {outcomes[0].error or 'it was not finished'}")


AT_ONCE = 64
"""Number of lines of a replay that are queued before the server waits for the client to read some."""
REPLAY_SECONDS = 30
"""Time after which the rest of a replay is queued at once, in seconds."""


async def load_session(
    context: ConnectionContext, params: StoredSessionRequest
) -> AsyncIterator[OpenedSession]:
    """Load a stored session. The replay is sent before the response."""
    async with AsyncExitStack() as keeping:
        opened = await _reopen(context, params, keeping)
        await _replay(context, opened)
        session = opened.begin(
            context
        )  # nothing is awaited from here on, until the client follows the session
        if session.title is not None:
            session.send(SessionInfoUpdate(title=session.title))
        yield OpenedSession(**session.options.shown())
        follow(context, session)


async def _replay(context: ConnectionContext, opened: ReopenedSession) -> None:
    """Send the client what the session has, as far as it has ended by the end of this call."""
    client, stored, live = context.client, opened.stored, opened.prepared.live
    replay, turns = Replay(live.id, sessions_of(context).client), stored.turns
    lines = replay.items(() if turns is None else turns.items)
    try:
        with anyio.move_on_after(REPLAY_SECONDS):  # other requests about this conversation wait for it
            for number, line in enumerate(lines, 1):
                client.send((line,))
                if number % AT_ONCE == 0:
                    await client.outgoing.wait_for_capacity()
        client.send(lines)
    except anyio.get_cancelled_exc_class():  # the client has cancelled the request
        context.background.start_soon(_abandon, context, live, name=f"end session {live.id}")
        raise
    running = live.catch_up()
    client.send(replay.items(running.items_since(opened.since)))
    plan = running.plan or (None if turns is None else turns.plan)
    client.send(replay.states(plan, live.session.facts.usage or stored.usage))


async def resume_session(
    context: ConnectionContext, params: StoredSessionRequest
) -> AsyncIterator[OpenedSession]:
    async with AsyncExitStack() as keeping:
        opened = await _reopen(context, params, keeping)
        opened.prepared.live.catch_up()
        session = opened.begin(context)
        yield OpenedSession(**session.options.shown())
        follow(context, session)


async def _abandon(context: ConnectionContext, live: LiveConversation) -> None:
    """End a conversation that was opened for a session, unless other clients use it."""
    if not live.shared_with_others(context.client):
        await live.shut_down()


async def close_session(context: ConnectionContext, params: OfSession) -> None:
    """End a session. The running turn is cancelled; its prompt is answered before this request."""
    session = sessions_of(context).get(params.session_id)
    if not sessions_of(context).leave(session):
        await _end(session)


async def delete_session(context: ConnectionContext, params: OfSession) -> None:
    """Move a session to the archive, from where it can be restored. A session that does not exist counts as deleted."""
    id = parse_conversation_id(params.session_id)
    if id is None:
        raise session_not_found(params.session_id)
    session = sessions_of(context).find(id)
    if session is not None:
        await _end(session)
    stored = context.stored.get()
    try:
        await stored.archive(id, await stored.find(id, archived=False))
    except RolloutNotFound:
        pass


class ReopenedSession(Struct, frozen=True):
    """A stored session that is open, and whose client is not sent anything about it yet."""

    prepared: PreparedSession
    stored: StoredConversation
    since: Position
    """Position from before the stored turns were read."""
    title: str

    def begin(self, context: ConnectionContext) -> AcpSession:
        session = self.prepared.begin(context)
        session.title_from(self.title)
        return session


async def _reopen(
    context: ConnectionContext, params: StoredSessionRequest, keeping: AsyncExitStack
) -> ReopenedSession:
    """Open a stored session, keep it open for the client of this request, and read the turns that the client is shown.
    Raises RpcError and RolloutUnreadable.
    """
    system_prompt(
        params.system_prompt
    )  # a session that is open here is not ended for a request that is refused
    conversations = context.stored.get()
    id, path = await stored_session(context, params.session_id)
    await require_login(context)
    before = sessions_of(context).find(id)
    if before is not None and not sessions_of(context).leave(before):
        await _end(before)
    summary, settings = await conversations.summary(path, ""), await conversations.last_settings(path)
    plan = planned(context.config, params, settings)
    live = await context.conversations.find_shared(context.client, path)
    if live is None:
        prepared, stored = await open_session(context, plan, StoredRollout(path, turns=True))
        await keeping.enter_async_context(prepared.live.opened())
        since = prepared.live.subscriptions.live_turn.position
        assert stored is not None
    else:
        keeping.enter_context(live.kept())
        prepared, since = await join_session(context, plan, live), live.subscriptions.live_turn.position
        stored = _without_open(await conversations.read_open(path, turns=True), live.catch_up().ended_ids())
    return ReopenedSession(prepared, stored, since, summary.name or summary.preview)


def _without_open(stored: StoredConversation, ended: ItemIds) -> StoredConversation:
    """Return the conversation without the items that go on. `ended` are the ids of those that have ended."""
    if stored.turns is None:
        return stored
    turns = (
        replace(
            turn, items=tuple(each for each in turn.items if each.item.id in ended or not each.started_ms)
        )
        for turn in stored.turns.turns
    )
    return replace(stored, turns=replace(stored.turns, turns=tuple(turns)))


async def _end(session: AcpSession) -> None:
    session.turns.cancel()
    await session.live.shut_down()


PAGE = 50
SOURCES = frozenset(SessionOrigin)
"""Origins of sessions that are listed. A part of another session, such as that of a sub-agent, is not listed."""


async def list_sessions(context: ConnectionContext, params: ListSessionsRequest) -> ListSessionsResponse:
    request = ListRequest(
        filter=ThreadFilter(
            sources=SOURCES,
            default_provider="",
            cwds=None if params.cwd is None else frozenset((os.path.normpath(params.cwd),)),
        ),
        by_change=True,
        limit=PAGE,
        cursor=params.cursor,
    )
    try:
        page = await context.stored.get().list(request)
    except InvalidCursor as error:
        raise invalid_params(str(error), "cursor") from None
    return ListSessionsResponse(
        sessions=tuple(_info(each) for each in page.rows), next_cursor=page.next_cursor
    )


def _info(summary: ThreadSummary) -> SessionInfo:
    changed = datetime.fromtimestamp(summary.updated_at, UTC)
    return SessionInfo(
        session_id=summary.id,
        cwd=summary.cwd,
        title=one_line(summary.name or summary.preview) or None,
        updated_at=changed.isoformat().replace("+00:00", "Z"),
    )


async def set_mode(context: ConnectionContext, params: SetSessionModeRequest) -> None:
    session = sessions_of(context).get(params.session_id)
    session.choose(session.options.with_mode(params.mode_id))


async def set_config_option(
    context: ConnectionContext, params: SetSessionConfigOptionRequest
) -> SetSessionConfigOptionResponse:
    session = sessions_of(context).get(params.session_id)
    session.choose(session.options.with_option(params.config_id, params.value))
    return SetSessionConfigOptionResponse(config_options=session.options.config_options())


def routes(context: ConnectionContext) -> tuple[Route, ...]:
    """Return the routes of these requests."""
    return (
        route(INITIALIZE, initialize, context),
        route(AUTHENTICATE, authenticate, context),
        route(LOGOUT, logout, context),
        route(LOAD_SESSION, load_session, context),
        route(RESUME_SESSION, resume_session, context),
        route(LIST_SESSIONS, list_sessions, context),
        route(CLOSE_SESSION, close_session, context),
        route(DELETE_SESSION, delete_session, context),
        route(SET_MODE, set_mode, context),
        route(SET_CONFIG_OPTION, set_config_option, context),
    )
