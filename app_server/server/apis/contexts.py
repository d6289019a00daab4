"""The two contexts of handlers, the same for every API.

1. `ConnectionContext`: one client, and what the server offers it. The composition root makes one for each connection.
   Handlers of methods that are about no open conversation take it.
2. `ConversationContext`: one open conversation, as that client uses it over one API. The route makes it of the id in
   the parameters (`router.route_in`), so a handler that takes it has the conversation. Only with it a turn can begin.

A handler has no context of its own. State that the handlers of a family need between two requests is an object in
`ConnectionContext.own` if it belongs to the connection, or in `ConnectionContext.shared` if it belongs to the server.
Both make an object when it is first asked for, so a context loads nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from anyio.abc import TaskGroup
from msgspec import Struct

from app_server.engine.auth.accounts import Accounts
from app_server.engine.client_context import ClientContext, TurnCaller
from app_server.engine.client_services import Host
from app_server.engine.config.config_values import Config, RequestOverrides
from app_server.engine.config.settings_service import UserSettings
from app_server.engine.session.session_commands import ChangeSettings
from app_server.engine.support.client_info import ClientProfile, UserAgent
from app_server.engine.support.lazy import Lazy
from app_server.engine.system_ports import SystemPorts
from app_server.server.conversations.adapter import ConversationApi
from app_server.server.conversations.live import LiveConversation
from app_server.server.conversations.manager import ConversationManager
from app_server.server.conversations.subscriptions import Client
from app_server_protocol.encoding import Json
from app_server_protocol.engine.thread_settings import UNCHANGED, SettingsPatch
from app_server_protocol.jsonrpc import INVALID_REQUEST, shortened
from app_server_protocol.method_table import Fields, S, ServerNotification
from app_server_protocol.rpc_errors import RpcError, invalid_params, invalid_request
from app_server_protocol.values import replace

if TYPE_CHECKING:
    from app_server.engine.mcp.mcp_requests import McpRequests
    from app_server.engine.model.model_facts import ModelFacts
    from app_server.engine.session.facade import SessionHandle
    from app_server.engine.storage.stored_conversations import StoredConversations
    from app_server.server.conversations.live_turn import LiveTurn


T = TypeVar("T")

BEGINS_WORK: Final = frozenset(
    {
        *("newConversation", "resumeConversation", "sendUserMessage", "sendUserTurn"),
        *(
            "thread/start",
            "thread/resume",
            "thread/fork",
            "turn/start",
            "review/start",
            "thread/compact/start",
        ),
        *("session/new", "session/load", "session/resume", "session/prompt"),
    }
)
"""Requests that open a conversation or begin a turn, in any API."""


class Handshake(Struct, frozen=True):
    client: ClientProfile
    user_agent: UserAgent

    def accept(self, name: str, version: str, capabilities: Json) -> None:
        """Accept an `initialize` with its capabilities, None if it has none. Raises RpcError if the client has
        initialized before.
        """
        if self.client.initialized:
            raise invalid_request("Already initialized", "already_initialized")
        self.client.initialized = True
        self.client.announce(capabilities)
        self.user_agent.set_client(name, version)


class EngineQueries(Protocol):
    """Requests to the engine that belong to no conversation."""

    async def with_model(self, config: Config, caller: ClientContext) -> Config:
        """Return a configuration with its model chosen. Raises ConfigError if no model can be."""
        ...

    def known_models(self, config: Config, caller: ClientContext) -> ModelFacts:
        """Return the facts known about the models of a configuration, without a request to the provider. Raises
        ConfigError.
        """
        ...

    async def models(self, config: Config, caller: ClientContext) -> ModelFacts:
        """Return the facts about the models of a configuration. Raises ConfigError."""
        ...

    def mcp_alone(self, config: Config, caller: ClientContext) -> AbstractAsyncContextManager[McpRequests]:
        """Run MCP servers that belong to no conversation, until the block ends."""
        ...


class MadeOnFirstUse:
    """Objects by their class. Each is made by the first that needs it."""

    def __init__(self) -> None:
        self._made: dict[type, Any] = {}

    def get(self, kind: type[T], make: Callable[[], T]) -> T:
        if kind not in self._made:
            self._made[kind] = make()
        made: T = self._made[kind]
        return made


class ConnectionContext(Struct, frozen=True, kw_only=True):
    """Services for the handlers of one connection."""

    config: UserSettings
    conversations: ConversationManager
    client: Client
    handshake: Handshake
    accounts: Accounts
    host: Host
    engine: EngineQueries
    stored: Lazy[StoredConversations]
    shared: MadeOnFirstUse
    """State that all connections of the server share."""
    own: MadeOnFirstUse
    """State of this connection."""
    background: TaskGroup
    """Task group for tasks that last until the client has left."""
    machine: SystemPorts

    def require_running(self, method: str) -> None:
        """Check that the server is not shutting down. Raises RpcError if it is, for a request that would begin work."""
        if self.conversations.draining and method in BEGINS_WORK:
            text = "Server is draining; retry after reconnecting"
            raise RpcError(INVALID_REQUEST, text, {"kind": "draining", "reason": "serverShuttingDown"})

    def require_folder(self, cwd: str | None) -> None:
        """Check the working directory of a request. Raises RpcError if neither the request nor the connection has one.
        Also raises it if the request's is not an existing folder and the client is strict; other clients are warned by
        the conversation.
        """
        if not self.client.has_cwd and (cwd is None or not cwd.startswith("/")):
            text = "this connection has no working directory: `cwd` needs an absolute path"
            raise invalid_params(text, "cwd")
        self.require_existing_folder(cwd)

    def require_existing_folder(self, cwd: str | None) -> None:
        """Check a folder that a request names. Raises RpcError if it does not exist and the client is strict."""
        if self.client.profile.strict_parameters and cwd is not None and not os.path.isdir(cwd):
            raise invalid_params(f"`cwd`: there is no folder {shortened(cwd)}", "cwd")

    def require_client_rights(self, method: str) -> None:
        """Check that clients have the user's rights. Raises RpcError if `app_server.client_rights` is false, and
        ConfigError if it cannot be read.
        """
        if not self.config.load().permissions.client_rights:
            raise invalid_request(
                f"{method} is switched off: the user's configuration sets app_server.client_rights to false",
                "client_rights",
            )

    def notify(self, row: ServerNotification[Fields, S], *args: Fields.args, **fields: Fields.kwargs) -> None:
        self.client.outgoing.notify(row.method, row.make(*args, **fields).to_json())


class ConversationContext(Struct, frozen=True):
    """One open conversation, as the client of one connection uses it over one API."""

    connection: ConnectionContext
    live: LiveConversation
    api: ConversationApi

    @property
    def id(self) -> str:
        return self.live.id

    @property
    def client(self) -> Client:
        return self.connection.client

    @property
    def session(self) -> SessionHandle:
        return self.live.session

    def turn_caller(self) -> TurnCaller:
        """Return the client as the caller of a turn. It is asked the questions of this turn, and of later ones, over
        this API, if it is subscribed there.
        """
        client = self.connection.client
        self.live.subscriptions.preferred[client] = self.api.id
        return TurnCaller(client.caller)

    def followed_turn(self) -> LiveTurn:
        """Follow the conversation over this API, and return its running turn."""
        client = self.connection.client
        self.live.subscriptions.adapter(self.api, client if client.receives_all_threads else None)
        return self.live.subscriptions.live_turn

    def change_settings(self, given: RequestOverrides, config: Config) -> None:
        """Apply the settings that a request names from the next turn on, with the values that they have in `config`,
        which was loaded with the request. Raises BeyondClientRights and ConfigError.
        """
        change = resolved_patch(given, config)
        if change != UNCHANGED:
            self.session.do(ChangeSettings(self.session.facts.permitted(change)))


def resolved_patch(given: RequestOverrides, config: Config) -> SettingsPatch:
    """Return the settings that a request names, as a change for a conversation that is open already: with the values
    that they have in `config`, which was loaded with the request.
    """
    named = set(given.patch.given())
    if given.sandbox is not None or "permission_profile" in named:
        named |= {"sandbox_policy", "permission_profile"}
    if "workspace_roots" not in named:
        return config.thread.part(named)
    # A patch names all folders of a workspace.
    return replace(config.thread.part(named), workspace_roots=given.patch.workspace_roots)
