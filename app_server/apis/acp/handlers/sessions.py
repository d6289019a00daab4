"""Sessions: begin one, go on with a stored one, list and end them, set their modes and options. The client's
editor is what patches in a session see: the text of a file with what is not saved, and a way to write it.
"""

from __future__ import annotations

import logging
import os
import os.path
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from msgspec import Struct

from app_server.apis.acp.commands import CommandList
from app_server.apis.acp.errors import invalid_params, session_not_found
from app_server.apis.acp.handlers.handshake import LoginContext
from app_server.apis.acp.inbound import UnsupportedServer, merged_servers
from app_server.apis.acp.opening import (
    LOCAL_PROVIDERS,
    SessionFolders,
    SessionPlan,
    UnfitFolder,
    plan_session,
)
from app_server.apis.acp.options import UnknownChoice
from app_server.apis.acp.replay import replayed
from app_server.apis.acp.session import AcpSession, Sessions
from app_server.apis.acp.text import one_line
from app_server.apis.route import HandlerResult
from app_server.apis.services import ProviderModels
from app_server.conversations.manager import ConversationManager, operation_numbers
from app_server.core.config.settings import UserSettings
from app_server.core.config.types import Config
from app_server.core.errors import BeyondClientRights, CoreError, RolloutNotFound
from app_server.core.host import Host
from app_server.core.lazy import Lazy
from app_server.core.opening import NewConversation, Origin, StoredRollout
from app_server.core.rollout.thread_query import InvalidListCursor, ListRequest, ThreadFilter, ThreadSummary
from app_server.core.rollout.turn_fold import ItemIds
from app_server.core.threads import run_in_thread
from app_server.core.tools.editor_access import DiskChanges, EditorAccess
from app_server.rpc.outgoing import Outgoing
from protocol.acp.methods import READ_TEXT_FILE, WRITE_TEXT_FILE
from protocol.acp.session import (
    CloseSessionRequest,
    CloseSessionResponse,
    DeleteSessionRequest,
    DeleteSessionResponse,
    ListSessionsRequest,
    ListSessionsResponse,
    LoadSessionRequest,
    LoadSessionResponse,
    NewSessionRequest,
    NewSessionResponse,
    ResumeSessionRequest,
    ResumeSessionResponse,
    SessionInfo,
    SetSessionConfigOptionRequest,
    SetSessionConfigOptionResponse,
    SetSessionModeRequest,
    SetSessionModeResponse,
)
from protocol.acp.tool_calls import ReadTextFileRequest, WriteTextFileRequest
from protocol.ids import ConversationId, SessionOrigin, parse_conversation_id
from protocol.rollout import TurnContextItem
from protocol.structs import replace

if TYPE_CHECKING:
    from app_server.core.rollout.stored_conversations import StoredConversations
    from app_server.core.rollout.stored_items import StoredItems


class ClientEditor(Struct, frozen=True):
    session_id: str
    outgoing: Outgoing

    async def read(self, path: str) -> str | None:
        """None for an error and for an answer that is none."""
        request = ReadTextFileRequest(session_id=self.session_id, path=path)
        reply = await self.outgoing.request(READ_TEXT_FILE.method, request.to_json())
        match reply.error, reply.result:
            case None, {"content": str(text)}:
                return text
            case _:
                return None

    async def write(self, path: str, text: str) -> bool:
        request = WriteTextFileRequest(session_id=self.session_id, path=path, content=text)
        reply = await self.outgoing.request(WRITE_TEXT_FILE.method, request.to_json())
        return reply.error is None


class StoredSession(Struct, frozen=True):
    stored: StoredItems
    title: str
    """The name that the user gave it, else its first words."""
    settings: TurnContextItem | None
    """None: no turn was stored."""


log = logging.getLogger(__name__)

NO_SERVERS = (
    "the user alone names MCP servers, because the configuration sets app_server.client_rights to false"
)
AT_ONCE = 64
"""Lines of a replay that are queued before the client has to have read some."""


class SessionContext(Struct, frozen=True):
    config: UserSettings
    conversations: ConversationManager
    sessions: Sessions
    outgoing: Outgoing
    login: LoginContext
    models: ProviderModels
    stored: Lazy[StoredConversations]
    host: Host
    operation_ids: Callable[[], Callable[[], str]] = operation_numbers


async def new_session(
    context: SessionContext, params: NewSessionRequest
) -> HandlerResult[NewSessionResponse]:
    plan = _planned(context.config, params)
    if not os.path.isdir(params.cwd):
        raise invalid_params("cwd is no directory", "cwd")
    await context.login.require()
    session = await _open(context, plan, NewConversation(), ItemIds())
    options = session.options
    response = NewSessionResponse(
        session_id=session.id, modes=options.modes(), config_options=options.config_options()
    )
    return HandlerResult(response, lambda: _follow(context, session))


async def load_session(
    context: SessionContext, params: LoadSessionRequest
) -> HandlerResult[LoadSessionResponse]:
    """The replay comes before the response."""
    session, stored = await _reopen(context, params)
    lines = replayed(stored.stored, session.id, context.sessions.client)
    try:
        for number, line in enumerate(lines, 1):
            context.outgoing.send(line)
            if number % AT_ONCE == 0:
                await context.outgoing.wait_for_capacity()
    except anyio.get_cancelled_exc_class():  # the client does not want it any more
        context.sessions.background.start_soon(_end, session, name=f"end session {session.id}")
        raise
    if session.title is not None:
        session.send("session_info_update", title=session.title)
    options = session.options
    response = LoadSessionResponse(modes=options.modes(), config_options=options.config_options())
    return HandlerResult(response, lambda: _follow(context, session))


async def resume_session(
    context: SessionContext, params: ResumeSessionRequest
) -> HandlerResult[ResumeSessionResponse]:
    session, _ = await _reopen(context, params)
    options = session.options
    response = ResumeSessionResponse(modes=options.modes(), config_options=options.config_options())
    return HandlerResult(response, lambda: _follow(context, session))


async def close_session(context: SessionContext, params: CloseSessionRequest) -> CloseSessionResponse:
    """The turn that runs is cancelled; its prompt is answered before this request."""
    session = context.sessions.get(params.session_id)
    await _end(session)
    return CloseSessionResponse()


async def delete_session(context: SessionContext, params: DeleteSessionRequest) -> DeleteSessionResponse:
    """Moves it to the archive, from where it can be brought back. One that is not there is deleted already."""
    id = parse_conversation_id(params.session_id)
    if id is None:
        raise session_not_found(params.session_id)
    session = context.sessions.find(id)
    if session is not None:
        await _end(session)
    stored = context.stored.get()
    try:
        await stored.archive(id, await stored.find(id, archived=False))
    except RolloutNotFound:
        pass
    return DeleteSessionResponse()


def _planned(
    source: UserSettings, request: NewSessionRequest, stored: TurnContextItem | None = None
) -> SessionPlan:
    """With the client's MCP servers. Raises RpcError and ConfigError."""
    folders = SessionFolders(request.cwd, request.additional_directories or ())
    try:
        plan = plan_session(source.load, source.environment, folders, stored)
        if request.mcp_servers and plan.config.fence is not None:
            raise BeyondClientRights(NO_SERVERS)
        servers = merged_servers(plan.config.mcp_servers, request.mcp_servers)
    except UnfitFolder as error:
        raise invalid_params(str(error), error.field) from None
    except UnsupportedServer as error:
        raise invalid_params(str(error), "mcpServers") from error
    return replace(plan, config=replace(plan.config, mcp_servers=servers))


async def _open(context: SessionContext, plan: SessionPlan, origin: Origin, ids: ItemIds) -> AcpSession:
    prompts = await context.host.prompts()
    live, _ = await context.conversations.open(plan.config, origin, context.operation_ids())
    session = context.sessions.add(live, plan.options, ids)  # from here on nothing is waited for
    client = context.sessions.client
    if client.read_files and client.write_files and plan.config.permissions.editor_files:
        editor = ClientEditor(live.id, context.outgoing)
        live.session.use_editor(EditorAccess(editor, DiskChanges(time.time_ns)))
    if plan.config.provider.id in LOCAL_PROVIDERS:
        session.lists_models = plan.config
    session.commands = CommandList(prompts, undo=plan.config.features.enabled("ghost_commit"))
    return session


async def _reopen(
    context: SessionContext, params: LoadSessionRequest | ResumeSessionRequest
) -> tuple[AcpSession, StoredSession]:
    id = parse_conversation_id(params.session_id)
    if id is None:
        raise session_not_found(params.session_id)
    try:
        path = await context.stored.get().find(id, archived=False)
    except RolloutNotFound:
        raise session_not_found(id) from None
    await context.login.require()
    before = context.sessions.find(id)
    if before is not None:
        await _end(before)
    stored = await _read(context.stored.get(), path, id)
    plan = _planned(context.config, params, stored.settings)
    session = await _open(context, plan, StoredRollout(path), stored.stored.ids)
    if stored.title:
        session.title_from(stored.title)
    return session, stored


async def _read(stored: StoredConversations, path: Path, id: ConversationId) -> StoredSession:
    """Read what a client is shown of a session. Raises RolloutUnreadable."""
    items, summary = await stored.items(path, id), await stored.summary(path, "")
    return StoredSession(
        items, summary.name or summary.preview, await run_in_thread(stored.last_settings, path)
    )


async def _follow(context: SessionContext, session: AcpSession) -> None:
    session.send("available_commands_update", availableCommands=session.commands.shown())
    context.sessions.follow(session)
    if session.lists_models is not None:
        context.sessions.background.start_soon(_offer_models, context, session, session.lists_models)


async def _offer_models(context: SessionContext, session: AcpSession, config: Config) -> None:
    """A server of models on the user's machine says which it has; nobody waits for it."""
    try:
        names = await context.models.names(config)
        session.choose(session.options.with_models(names))
    except CoreError:
        pass  # the server of models does not answer, or the session has ended
    except Exception:  # it costs these models, and no session
        log.exception("listing models of %s", config.provider.id)


async def _end(session: AcpSession) -> None:
    session.turns.cancel()
    await session.live.shut_down()


PAGE = 50
SOURCES = frozenset(SessionOrigin)
"""A part of another session, as the one of a sub-agent, is none of its own."""


async def list_sessions(
    stored: Lazy[StoredConversations], params: ListSessionsRequest
) -> ListSessionsResponse:
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
        page = await stored.get().list(request)
    except InvalidListCursor as error:
        raise invalid_params(str(error), "cursor") from None
    return ListSessionsResponse(
        sessions=tuple(_info(each) for each in page.threads), next_cursor=page.next_cursor
    )


def _info(summary: ThreadSummary) -> SessionInfo:
    changed = datetime.fromtimestamp(summary.updated_at, UTC)
    return SessionInfo(
        session_id=summary.id,
        cwd=summary.cwd,
        title=one_line(summary.name or summary.preview) or None,
        updated_at=changed.isoformat().replace("+00:00", "Z"),
    )


async def set_mode(sessions: Sessions, params: SetSessionModeRequest) -> SetSessionModeResponse:
    session = sessions.get(params.session_id)
    try:
        session.choose(session.options.with_mode(params.mode_id))
    except UnknownChoice as error:
        raise invalid_params(str(error), "modeId") from None
    return SetSessionModeResponse()


async def set_config_option(
    sessions: Sessions, params: SetSessionConfigOptionRequest
) -> SetSessionConfigOptionResponse:
    session = sessions.get(params.session_id)
    try:
        session.choose(session.options.with_option(params.config_id, params.value))
    except UnknownChoice as error:
        raise invalid_params(str(error), "value") from None
    return SetSessionConfigOptionResponse(config_options=session.options.config_options())
