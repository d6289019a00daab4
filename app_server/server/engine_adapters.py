"""MCP servers, telemetry and notifications for the sessions of the engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

import anyio
from anyio.abc import TaskGroup

from app_server import PROTOCOL_VERSION
from app_server.engine.auth import mcp_tokens, oauth_http
from app_server.engine.auth.auth_manager import AuthManager
from app_server.engine.auth.credentials import AuthMethod
from app_server.engine.client_context import ClientContext
from app_server.engine.config.config_values import Config, OtelExporter
from app_server.engine.mcp.mcp_manager import McpManager
from app_server.engine.mcp.runtime_interface import DISCOVERS_FIRST, McpRuntime
from app_server.engine.model.model_facts import ModelFacts
from app_server.engine.ports import ProcessEnvironment
from app_server.engine.sandbox.exec.command_runner import CommandRunner
from app_server.engine.session.session_servers import Elicitations
from app_server.engine.session.session_services import TurnCompleted
from app_server.engine.support.lazy import Lazy
from app_server.engine.telemetry import notify
from app_server.engine.telemetry.telemetry_events import (
    NO_TELEMETRY,
    ConversationFacts,
    ConversationTelemetry,
    TelemetryExport,
    open_export,
)
from app_server.engine.tools.registry import BUILTIN_NAMES
from app_server_protocol.engine.events import McpServerStateChanged
from app_server_protocol.ids import ConversationId
from app_server_protocol.values import replace

if TYPE_CHECKING:
    from app_server.engine.auth.mcp_tokens import McpTokenSource
    from app_server.engine.mcp.mcp_requests import McpRequests

AUTH_MODES = {AuthMethod.API_KEY: "ApiKey", AuthMethod.CHATGPT: "ChatGPT"}
"""Names of the login methods in telemetry, which dashboards use."""


class EngineAdapters:
    """MCP servers, telemetry and notifications for the engine's sessions."""

    def __init__(
        self,
        process: ProcessEnvironment,
        runner: CommandRunner,
        auth: AuthManager,
        background: TaskGroup,
    ) -> None:
        self._process, self._runner, self._auth, self._background = process, runner, auth, background

        def load_mcp_tokens() -> McpTokenSource:
            http = oauth_http.OAuthHttp(process.environment)
            return mcp_tokens.McpTokenSource(auth.home, http, process.wall_clock, anyio.Lock())

        self._mcp_tokens = Lazy(load_mcp_tokens)
        self._programs: dict[tuple[str, ...], notify.NotifyProgram] = {}
        self._export: TelemetryExport | None = None
        self._exports = False
        """Whether opening the export was tried, even if none can be opened."""
        self._opening = anyio.Lock()

    def mcp(
        self,
        config: Config,
        caller: ClientContext,
        elicitations: Elicitations,
        on_state: Callable[[McpServerStateChanged], None],
    ) -> McpManager:
        def runtime() -> McpRuntime:
            elicit = elicitations.ask if caller.elicitation() else None
            return replace(self._mcp_runtime(config, caller), elicit=elicit, on_state=on_state)

        return McpManager(config.mcp_servers, runtime, lambda: BUILTIN_NAMES)

    def mcp_alone(self, config: Config, caller: ClientContext) -> AbstractAsyncContextManager[McpRequests]:
        """Run MCP servers that belong to no conversation, until the block ends: their elicitations reach no client."""
        return McpManager(config.mcp_servers, lambda: self._mcp_runtime(config, caller)).running()

    def _mcp_runtime(self, config: Config, caller: ClientContext) -> McpRuntime:
        return McpRuntime(
            environment=self._environment_of(caller),
            home=str(config.home),
            cwd=str(config.cwd),
            runner=self._runner,
            version=PROTOCOL_VERSION,
            discovers_first=config.features.enabled(DISCOVERS_FIRST),
            tokens=self._mcp_tokens.get,
        )

    def _environment_of(self, caller: ClientContext) -> Mapping[str, str]:
        return self._process.environment if caller.environment is None else caller.environment

    async def telemetry(
        self, config: Config, caller: ClientContext, conversation_id: ConversationId
    ) -> ConversationTelemetry:
        """Return the telemetry of a conversation. The process has one export, with the configuration of the first
        conversation that enables it.
        """
        if config.otel.exporter is OtelExporter.NONE:
            return NO_TELEMETRY
        async with self._opening:
            if not self._exports:
                self._export = await open_export(
                    config.otel, PROTOCOL_VERSION, self._process.wall_clock, self._process.environment
                )
                self._exports = True
        if self._export is None:
            return NO_TELEMETRY
        auth = self._auth.under(config.login)
        method, claims = auth.method(), auth.identity()
        facts = ConversationFacts(
            conversation_id=conversation_id,
            app_version=PROTOCOL_VERSION,
            terminal_type=caller.identity().user_agent,
            model=config.thread.model,
            slug=ModelFacts(config).row(config.thread.model).slug,
            auth_mode=None if method is None else AUTH_MODES[method],
            account_id=claims.account_id if claims else None,
            account_email=claims.email if claims else None,
        )
        return ConversationTelemetry(self._export, facts)

    def turn_completed(
        self, config: Config, caller: ClientContext, conversation_id: ConversationId
    ) -> TurnCompleted | None:
        if not config.notify:
            return None
        program = self._programs.setdefault(config.notify, notify.NotifyProgram(config.notify))
        environment = self._environment_of(caller)

        def completed(turn_id: str, user_messages: Sequence[str], last: str | None) -> None:
            message = notify.turn_complete(conversation_id, turn_id, str(config.cwd), user_messages, last)
            self._background.start_soon(program.notify, message, environment, name="notify")

        return completed

    async def close(self) -> None:
        """Export the remaining telemetry, within a bound."""
        if self._export is not None:
            await self._export.close()
