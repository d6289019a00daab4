"""Opening of sessions, new ones and, for the module `requests`, stored ones; whether they need a login."""

from __future__ import annotations

import logging
import os.path
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from app_server.engine.config.config_values import Config
from app_server.engine.config.settings_service import UserSettings
from app_server.engine.session.session_commands import ChangeSettings
from app_server.engine.support.engine_errors import (
    BeyondClientRights,
    ConfigError,
    CoreError,
    RolloutNotFound,
)
from app_server.engine.thread_origin import NewConversation, Origin
from app_server.server.apis.acp.acp_client import MAX_VERSION, auth_methods, initialize_result, parse_client
from app_server.server.apis.acp.acp_commands import CommandList
from app_server.server.apis.acp.acp_errors import login_needed, session_not_found
from app_server.server.apis.acp.acp_session import AcpSession, sessions_of
from app_server.server.apis.acp.inbound import merged_servers, system_prompt
from app_server.server.apis.acp.session_options import SessionPlan, plan_session
from app_server.server.apis.contexts import ConnectionContext
from app_server.server.conversations.live import LiveConversation
from app_server.server.rpc.outgoing import OutboundQueue
from app_server_protocol.acp.sessions import NewSessionRequest, NewSessionResponse
from app_server_protocol.acp.tool_calls import (
    READ_TEXT_FILE,
    WRITE_TEXT_FILE,
    ReadTextFileRequest,
    WriteTextFileRequest,
)
from app_server_protocol.encoding import Json
from app_server_protocol.engine.notices import CustomPrompt
from app_server_protocol.engine.thread_settings import SettingsPatch
from app_server_protocol.ids import ConversationId, parse_conversation_id
from app_server_protocol.rollout import TurnContextItem
from app_server_protocol.rpc_errors import invalid_params
from app_server_protocol.values import replace

if TYPE_CHECKING:
    from app_server.engine.storage.rollout_reader import StoredConversation

LOGIN_NEEDED = "Login required: choose a way to log in, or set OPENAI_API_KEY where the server is started"


async def require_login(context: ConnectionContext) -> None:
    """Require a login. Raises RpcError if the configured provider needs a login and there is none."""
    if await lacks_login(context):
        raise login_needed(LOGIN_NEEDED)


async def lacks_login(context: ConnectionContext) -> bool:
    """Return whether the configured provider needs a login and there is neither one nor a key that stands in."""
    status = await context.accounts.status()
    return status.requires_openai_auth and not status.has_credentials


async def stored_session(context: ConnectionContext, session_id: str) -> tuple[ConversationId, Path]:
    """Return the id and the file of a session that is listed. Raises RpcError."""
    id = parse_conversation_id(session_id)
    if id is None:
        raise session_not_found(session_id)
    try:
        return id, await context.stored.get().find(id, archived=False)
    except RolloutNotFound:
        raise session_not_found(id) from None


def offered_logins(context: ConnectionContext) -> list[Json]:
    """Return the ways to log in that the client is offered."""
    try:
        needs_login = context.accounts.needs_login()
    except ConfigError:
        needs_login = False  # the session reports the error in the settings
    return auth_methods(context.config.environment, needs_login=needs_login)


def answer_initialize(context: ConnectionContext, params: Json) -> bytes | None:
    """Accept an `initialize` whose parameters need no further validation, and return its result; None for others. The
    shapes of most requests are loaded with the first of these. Raises RpcError if the client has initialized before.
    """
    version = params.get("protocolVersion") if isinstance(params, dict) else None
    if type(version) is not int or not 0 <= version < MAX_VERSION:
        return None
    accept_client(context, params)
    return initialize_result(offered_logins(context))


def accept_client(context: ConnectionContext, params: Mapping[str, Json]) -> None:
    """Store the capabilities that the client announced. Raises RpcError if it has done so before."""
    client = parse_client(params)
    context.handshake.accept(client.name, client.version, {"elicitation": client.forms})
    sessions_of(context).client = client


class ClientEditor(Struct, frozen=True):
    """The client as an editor: it reads the text of a file with unsaved changes, and writes files."""

    session_id: str
    outgoing: OutboundQueue

    async def read(self, path: str) -> str | None:
        """Return the editor's text of a file; None if the client answers with an error or an invalid answer."""
        request = ReadTextFileRequest(session_id=self.session_id, path=path)
        reply = await self.outgoing.request(READ_TEXT_FILE.method, request.to_json())
        match reply.error, reply.result:
            case None, {"content": str(text)}:
                return text
            case _:
                return None

    async def write(self, path: str, text: str) -> bool:
        """Write a text through the editor, which saves it; return whether the client did so."""
        request = WriteTextFileRequest(session_id=self.session_id, path=path, content=text)
        reply = await self.outgoing.request(WRITE_TEXT_FILE.method, request.to_json())
        return reply.error is None


log = logging.getLogger(__name__)

NO_SERVERS = (
    "the user alone names MCP servers, because the configuration sets app_server.client_rights to false"
)


async def new_session(
    context: ConnectionContext, params: NewSessionRequest
) -> AsyncIterator[NewSessionResponse]:
    """Open a session in a folder."""
    plan = planned(context.config, params)
    if not os.path.isdir(params.cwd):
        raise invalid_params("cwd is no directory", "cwd")
    await require_login(context)
    prepared, _ = await open_session(context, plan, NewConversation(paginated=True))
    session = prepared.begin(context)
    yield NewSessionResponse(session_id=session.id, **session.options.shown())
    follow(context, session)


def planned(
    source: UserSettings, request: NewSessionRequest, stored: TurnContextItem | None = None
) -> SessionPlan:
    """Return the settings with which a session begins, and the client's MCP servers. Raises RpcError and
    ConfigError.
    """
    given = system_prompt(request.system_prompt)
    plan = plan_session(source, request.cwd, request.additional_directories or (), stored)
    if request.mcp_servers and plan.config.fence is not None:
        raise BeyondClientRights(NO_SERVERS)
    servers = merged_servers(plan.config.mcp_servers, request.mcp_servers)
    return replace(plan, config=replace(plan.config, mcp_servers=servers), system_prompt=given)


async def settled(context: ConnectionContext, plan: SessionPlan) -> SessionPlan:
    """Return the plan of a session with a model chosen, and with the models that can be chosen. Raises ConfigError."""
    engine, caller = context.engine, context.client.caller
    config = await engine.with_model(plan.config, caller)
    options = plan.options.of(engine.known_models(config, caller), config.thread.model)
    return replace(plan, config=config, options=options)


class PreparedSession(Struct, frozen=True):
    """An open conversation, and what a session of it needs. The session begins in the step that answers its request."""

    plan: SessionPlan
    live: LiveConversation
    prompts: tuple[CustomPrompt, ...]

    def begin(self, context: ConnectionContext) -> AcpSession:
        """Begin the session. The client is sent nothing about it yet."""
        return _begun(context, self.plan, self.live, self.prompts)


async def open_session(
    context: ConnectionContext, plan: SessionPlan, origin: Origin
) -> tuple[PreparedSession, StoredConversation | None]:
    """Open a conversation for a session. Return it with what was stored of it; None for a new one."""
    plan = await settled(context, plan)
    prompts = await context.host.prompts()
    live, opened = await context.conversations.open(context.client, plan.config, origin)
    return PreparedSession(plan, live, prompts), opened.stored


async def join_session(
    context: ConnectionContext, plan: SessionPlan, live: LiveConversation
) -> PreparedSession:
    """Prepare a session of a conversation that other clients have open."""
    plan = await settled(context, plan)
    return PreparedSession(plan, live, await context.host.prompts())


def _begun(
    context: ConnectionContext,
    plan: SessionPlan,
    live: LiveConversation,
    prompts: tuple[CustomPrompt, ...],
) -> AcpSession:
    session = sessions_of(context).add(live, plan.options)
    given = plan.system_prompt
    if given is not None and given != live.session.facts.settings.system_prompt:
        live.session.do(ChangeSettings(SettingsPatch(system_prompt=given)))
    use_editor(context, live, plan.config)
    facts = context.engine.known_models(plan.config, context.client.caller)
    if facts.quirks.local:
        session.lists_models = plan.config
    session.commands = CommandList(prompts, undo=plan.config.features.enabled("ghost_commit"))
    return session


def use_editor(context: ConnectionContext, live: LiveConversation, config: Config) -> None:
    """Let a conversation read and write files through the client, if it can and the settings allow it."""
    client = sessions_of(context).client
    if client.read_files and client.write_files and config.permissions.editor_files:
        live.session.use_editor(ClientEditor(live.id, context.client.outgoing))


def follow(context: ConnectionContext, session: AcpSession) -> None:
    """Send the client the events of a session whose id it knows."""
    session.send_commands()
    sessions_of(context).follow(session)
    if session.lists_models is not None:
        context.background.start_soon(_offer_models, context, session, session.lists_models)


async def _offer_models(context: ConnectionContext, session: AcpSession, config: Config) -> None:
    """Ask a server of models on the user's machine for its models, in the background."""
    try:
        facts = await context.engine.models(config, context.client.caller)
        session.choose(session.options.of(facts, session.options.model))
    except CoreError:
        pass  # the server of models does not answer, or the session has ended
    except Exception:  # an error costs the session these models, and nothing else
        log.exception("listing models of %s", config.provider.id)
