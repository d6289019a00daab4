"""What a client asks besides new sessions and prompts: the handshake, logins; going on with a stored session, lists,
ends, modes and options. Loaded with the first such request.
"""

from __future__ import annotations

import os.path
import webbrowser
from datetime import UTC, datetime
from pathlib import Path

import anyio
import msgspec
from msgspec import Struct

from app_server.apis.acp.client import API_KEY, auth_methods, initialize_fields
from app_server.apis.acp.errors import invalid_params, login_needed, session_not_found
from app_server.apis.acp.handlers.sessions import (
    LoginContext,
    SessionContext,
    accept,
    follow,
    open_session,
    planned,
)
from app_server.apis.acp.options import UnknownChoice
from app_server.apis.acp.replay import replayed
from app_server.apis.acp.session import AcpSession
from app_server.apis.acp.shown import one_line
from app_server.apis.router import HandlerResult, Route, route
from app_server.core.auth.home_login import LoginOutcome
from app_server.core.errors import RolloutNotFound
from app_server.core.opening import StoredRollout
from app_server.core.rollout.pages import InvalidCursor, ListRequest, ThreadFilter, ThreadSummary
from app_server.core.rollout.stored_conversations import StoredConversations
from app_server.core.rollout.stored_items import StoredItems
from app_server.core.threads import run_in_thread
from protocol.acp.requests import (
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
    AuthenticateResponse,
    CloseSessionRequest,
    CloseSessionResponse,
    DeleteSessionRequest,
    DeleteSessionResponse,
    ListSessionsRequest,
    ListSessionsResponse,
    LoadSessionRequest,
    LoadSessionResponse,
    LogoutRequest,
    LogoutResponse,
    ResumeSessionRequest,
    ResumeSessionResponse,
    SessionInfo,
    SetSessionConfigOptionRequest,
    SetSessionConfigOptionResponse,
    SetSessionModeRequest,
    SetSessionModeResponse,
)
from protocol.ids import ConversationId, SessionOrigin, parse_conversation_id
from protocol.rollout import TurnContextItem


async def open_browser(url: str) -> bool:
    """Open an address in the user's browser; return False where there is none."""
    return await run_in_thread(webbrowser.open, url, abandon_on_cancel=True)


async def initialize(context: LoginContext, params: AgentInitializeRequest) -> AgentInitializeResponse:
    accept(context, params.model_extra or {})
    return AgentInitializeResponse.model_validate(initialize_fields(context.methods()))


async def authenticate(context: LoginContext, params: AuthenticateRequest) -> AuthenticateResponse:
    """Answer once the login is done; at once where nothing is missing."""
    offered = [method["id"] for method in auth_methods(context.config.environment, needs_login=True)]
    if params.method_id not in offered:
        raise invalid_params(f"unknown method of authentication: {params.method_id[:100]}", "methodId")
    if not await context.lacks_login():
        return AuthenticateResponse()
    if params.method_id == API_KEY:
        raise login_needed("There is no CODEX_API_KEY and no OPENAI_API_KEY in the server's environment")
    await _browser_login(context)
    return AuthenticateResponse()


async def logout(context: LoginContext, params: LogoutRequest) -> LogoutResponse:
    await context.accounts.logout()
    return LogoutResponse()


class _Outcome(Struct):
    came: anyio.Event = msgspec.field(default_factory=anyio.Event)
    value: LoginOutcome | None = None

    def take(self, outcome: LoginOutcome) -> None:
        self.value = outcome
        self.came.set()


async def _browser_login(context: LoginContext) -> None:
    login, outcome = await context.accounts.open_login(), _Outcome()
    context.accounts.await_in_background(login, outcome.take)
    try:
        if not await open_browser(login.flow.auth_url):
            raise login_needed("No browser could be opened; log in with an API key")
        await outcome.came.wait()
    finally:
        context.accounts.cancel(login.id)
    if outcome.value is None or not outcome.value.success:
        reason = outcome.value.error if outcome.value else None
        raise login_needed(f"The login failed: {reason or 'it was not finished'}")


def login_routes(login: LoginContext) -> tuple[Route, ...]:
    """Return the routes of the handshake and of logins."""
    return (
        route(INITIALIZE, initialize, login),
        route(AUTHENTICATE, authenticate, login),
        route(LOGOUT, logout, login),
    )


class StoredSession(Struct, frozen=True):
    stored: StoredItems
    title: str
    """The name that the user gave it, else its first words."""
    settings: TurnContextItem | None
    """None: no turn was stored."""


class SessionRequests(Struct, frozen=True):
    """What these handlers use."""

    opening: SessionContext
    stored: StoredConversations


AT_ONCE = 64
"""Lines of a replay that are queued before the client has to have read some."""


async def load_session(
    context: SessionRequests, params: LoadSessionRequest
) -> HandlerResult[LoadSessionResponse]:
    """Go on with a stored session. The replay comes before the response."""
    session, stored = await _reopen(context, params)
    lines = replayed(stored.stored, session.id, context.opening.sessions.client)
    try:
        for number, line in enumerate(lines, 1):
            context.opening.outgoing.send(line)
            if number % AT_ONCE == 0:
                await context.opening.outgoing.wait_for_capacity()
    except anyio.get_cancelled_exc_class():  # the client does not want it any more
        context.opening.sessions.background.start_soon(_end, session, name=f"end session {session.id}")
        raise
    if session.title is not None:
        session.send("session_info_update", title=session.title)
    options = session.options
    response = LoadSessionResponse(modes=options.modes(), config_options=options.config_options())
    return HandlerResult(response, lambda: follow(context.opening, session))


async def resume_session(
    context: SessionRequests, params: ResumeSessionRequest
) -> HandlerResult[ResumeSessionResponse]:
    session, _ = await _reopen(context, params)
    options = session.options
    response = ResumeSessionResponse(modes=options.modes(), config_options=options.config_options())
    return HandlerResult(response, lambda: follow(context.opening, session))


async def close_session(context: SessionRequests, params: CloseSessionRequest) -> CloseSessionResponse:
    """End a session. The turn that runs is cancelled; its prompt is answered before this request."""
    session = context.opening.sessions.get(params.session_id)
    await _end(session)
    return CloseSessionResponse()


async def delete_session(context: SessionRequests, params: DeleteSessionRequest) -> DeleteSessionResponse:
    """Move a session to the archive, from where it can be brought back. One that is not there is deleted already."""
    id = parse_conversation_id(params.session_id)
    if id is None:
        raise session_not_found(params.session_id)
    session = context.opening.sessions.find(id)
    if session is not None:
        await _end(session)
    stored = context.stored
    try:
        await stored.archive(id, await stored.find(id, archived=False))
    except RolloutNotFound:
        pass
    return DeleteSessionResponse()


async def _reopen(
    context: SessionRequests, params: LoadSessionRequest | ResumeSessionRequest
) -> tuple[AcpSession, StoredSession]:
    id = parse_conversation_id(params.session_id)
    if id is None:
        raise session_not_found(params.session_id)
    try:
        path = await context.stored.find(id, archived=False)
    except RolloutNotFound:
        raise session_not_found(id) from None
    await context.opening.login.require()
    before = context.opening.sessions.find(id)
    if before is not None:
        await _end(before)
    stored = await _read(context.stored, path, id)
    plan = planned(context.opening.config, params, stored.settings)
    session = await open_session(context.opening, plan, StoredRollout(path), stored.stored.ids)
    if stored.title:
        session.title_from(stored.title)
    return session, stored


async def _read(stored: StoredConversations, path: Path, id: ConversationId) -> StoredSession:
    """Read what a client is shown of a session. Raises RolloutUnreadable."""
    items, summary = await stored.items(path, id), await stored.summary(path, "")
    return StoredSession(
        items, summary.name or summary.preview, await run_in_thread(stored.last_settings, path)
    )


async def _end(session: AcpSession) -> None:
    session.turns.cancel()
    await session.live.shut_down()


PAGE = 50
SOURCES = frozenset(SessionOrigin)
"""A part of another session, as the one of a sub-agent, is none of its own."""


async def list_sessions(context: SessionRequests, params: ListSessionsRequest) -> ListSessionsResponse:
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
        page = await context.stored.list(request)
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


async def set_mode(context: SessionRequests, params: SetSessionModeRequest) -> SetSessionModeResponse:
    session = context.opening.sessions.get(params.session_id)
    try:
        session.choose(session.options.with_mode(params.mode_id))
    except UnknownChoice as error:
        raise invalid_params(str(error), "modeId") from None
    return SetSessionModeResponse()


async def set_config_option(
    context: SessionRequests, params: SetSessionConfigOptionRequest
) -> SetSessionConfigOptionResponse:
    session = context.opening.sessions.get(params.session_id)
    try:
        session.choose(session.options.with_option(params.config_id, params.value))
    except UnknownChoice as error:
        raise invalid_params(str(error), "value") from None
    return SetSessionConfigOptionResponse(config_options=session.options.config_options())


def session_routes(context: SessionRequests) -> tuple[Route, ...]:
    """Return the routes of these requests."""
    return (
        route(LOAD_SESSION, load_session, context),
        route(RESUME_SESSION, resume_session, context),
        route(LIST_SESSIONS, list_sessions, context),
        route(CLOSE_SESSION, close_session, context),
        route(DELETE_SESSION, delete_session, context),
        route(SET_MODE, set_mode, context),
        route(SET_CONFIG_OPTION, set_config_option, context),
    )
