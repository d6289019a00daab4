"""The second half of the composition root: the engine with its ports to models, MCP servers, telemetry, notifications.

Imports all of the agent, so import it late: see `server.LazyEngine`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

import anyio
from anyio.abc import TaskGroup
from msgspec import Struct

from app_server.core.assembling import EngineServices
from app_server.core.auth.auth_manager import AuthManager
from app_server.core.auth.credentials import AuthMethod
from app_server.core.config.types import Config, OtelExporter
from app_server.core.engine import Engine
from app_server.core.exec.runner import CommandRunner
from app_server.core.git.ghost import Snapshots
from app_server.core.git.run_git import Git
from app_server.core.lazy import Lazy
from app_server.core.mcp.interfaces import McpRuntime
from app_server.core.mcp.mcp_manager import McpManager
from app_server.core.model.families import find_family
from app_server.core.model.model_client import ModelClient
from app_server.core.model.model_list import ModelList, list_models
from app_server.core.model.prompt import ClientIdentity
from app_server.core.notify import NotifyProgram, turn_complete
from app_server.core.opening import ProcessEnvironment
from app_server.core.session.services import TurnCompleted
from app_server.core.session.session_servers import Elicitations
from app_server.core.telemetry.telemetry_events import (
    NO_TELEMETRY,
    ConversationFacts,
    ConversationTelemetry,
    TelemetryExport,
    open_export,
)
from app_server.core.tools.registry import BUILTIN_NAMES
from app_server.identity import ClientProfile, UserAgent
from app_server.machine import ModelHttp
from protocol.engine.events import McpServerStateChanged
from protocol.ids import ConversationId
from protocol.structs import Discreet, replace

if TYPE_CHECKING:
    from app_server.core.auth.mcp_tokens import McpTokenSource
    from app_server.core.mcp.requests import McpRequests
    from app_server.core.model.request_gate import RequestGate
    from app_server.core.skills.skill_catalog import SkillCatalog

AUTH_MODES = {AuthMethod.API_KEY: "ApiKey", AuthMethod.CHATGPT: "ChatGPT"}
"""The names that dashboards use."""


class Models(Discreet, frozen=True):
    """Creates the model client of each conversation; they share connections."""

    HIDDEN = ("environment",)

    http: ModelHttp
    auth: AuthManager
    user_agent: UserAgent
    environment: Mapping[str, str]
    jitter: Callable[[], float]
    gate: RequestGate | None = None

    def of(self, config: Config, telemetry: ConversationTelemetry) -> ModelClient:
        return ModelClient(
            config.provider,
            self.http,
            env=self.environment,
            identity=self.identity(),
            login=self.auth.under(config.login),
            rng=self.jitter,
            gate=self.gate,
            watch=None if telemetry is NO_TELEMETRY else telemetry.api_request,
        )

    async def names(self, config: Config) -> tuple[str, ...]:
        """The provider's models; empty if the request fails."""
        login = await self.auth.under(config.login).credentials()
        models = await list_models(
            config.provider, self.http, env=self.environment, identity=self.identity(), login=login
        )
        return models.names if isinstance(models, ModelList) else ()

    def identity(self) -> ClientIdentity:
        return ClientIdentity(originator=self.user_agent.originator, user_agent=self.user_agent.text())


class EngineAdapters:
    """The engine's `EnginePorts`."""

    def __init__(
        self,
        process: ProcessEnvironment,
        runner: CommandRunner,
        auth: AuthManager,
        user_agent: UserAgent,
        client: ClientProfile,
        background: TaskGroup,
    ) -> None:
        self._process, self._runner, self._auth = process, runner, auth
        self._user_agent, self._client, self._background = user_agent, client, background

        def load_mcp_tokens() -> McpTokenSource:
            from app_server.core.auth import mcp_tokens, oauth_http  # noqa: PLC0415  only MCP servers over HTTP

            http = oauth_http.OAuthHttp(process.environment)
            return mcp_tokens.McpTokenSource(auth.home, http, process.wall_clock, anyio.Lock())

        self._mcp_tokens = Lazy(load_mcp_tokens)
        self._programs: dict[tuple[str, ...], NotifyProgram] = {}
        self._export: TelemetryExport | None = None
        self._exports = False
        """Whether the export was opened, also where none can be."""
        self._opening = anyio.Lock()

    def originator(self) -> str:
        return self._user_agent.originator

    def elicitation(self) -> bool:
        return self._client.elicitation

    def mcp(
        self, config: Config, elicitations: Elicitations, on_state: Callable[[McpServerStateChanged], None]
    ) -> McpManager:
        def runtime() -> McpRuntime:
            elicit = elicitations.ask if self._client.elicitation else None
            return replace(self._mcp_runtime(config), elicit=elicit, on_state=on_state)

        return McpManager(config.mcp_servers, runtime, lambda: BUILTIN_NAMES)

    def mcp_alone(self, config: Config) -> AbstractAsyncContextManager[McpRequests]:
        """Run servers of no conversation for as long as the block: nobody can be asked what they want to know."""
        return McpManager(config.mcp_servers, lambda: self._mcp_runtime(config)).running()

    def _mcp_runtime(self, config: Config) -> McpRuntime:
        return McpRuntime(
            environment=self._process.environment,
            home=str(config.home),
            cwd=str(config.cwd),
            runner=self._runner,
            version=self._user_agent.version,
            tokens=self._mcp_tokens.get,
        )

    async def telemetry(self, config: Config, conversation_id: ConversationId) -> ConversationTelemetry:
        """One export per process, with the configuration of the first conversation that enables it."""
        if config.otel.exporter is OtelExporter.NONE:
            return NO_TELEMETRY
        async with self._opening:
            if not self._exports:
                self._export = await open_export(
                    config.otel, self._user_agent.version, self._process.wall_clock, self._process.environment
                )
                self._exports = True
        if self._export is None:
            return NO_TELEMETRY
        method, claims = self._auth.method(), self._auth.identity()
        return self._export.conversation(
            ConversationFacts(
                conversation_id=conversation_id,
                app_version=self._user_agent.version,
                terminal_type=self._user_agent.text(),
                model=config.model.name,
                slug=find_family(config.model.name).name,
                auth_mode=None if method is None else AUTH_MODES[method],
                account_id=claims.account_id if claims else None,
                account_email=claims.email if claims else None,
            )
        )

    def turn_completed(self, config: Config, conversation_id: ConversationId) -> TurnCompleted | None:
        if not config.notify:
            return None
        program = self._program(config.notify)

        def completed(turn_id: str, user_messages: Sequence[str], last: str | None) -> None:
            message = turn_complete(conversation_id, turn_id, str(config.cwd), user_messages, last)
            self._background.start_soon(program.notify, message, name="notify")

        return completed

    async def close(self) -> None:
        """Export the remaining telemetry, within a bound."""
        if self._export is not None:
            await self._export.close()

    def _program(self, command: tuple[str, ...]) -> NotifyProgram:
        if command not in self._programs:
            self._programs[command] = NotifyProgram(command, self._process.environment)
        return self._programs[command]


class Assembled(Struct, frozen=True):
    engine: Engine
    models: Models
    adapters: EngineAdapters


def assemble(
    process: ProcessEnvironment,
    http: ModelHttp,
    runner: CommandRunner,
    git: Git,
    auth: AuthManager,
    user_agent: UserAgent,
    client: ClientProfile,
    background: TaskGroup,
    skills: Lazy[SkillCatalog],
) -> Assembled:
    models = Models(http, auth, user_agent, process.environment, process.jitter, process.gate)
    adapters = EngineAdapters(process, runner, auth, user_agent, client, background)
    services = EngineServices(process, runner, models, Snapshots(git), adapters, skills)
    return Assembled(Engine(services), models, adapters)
