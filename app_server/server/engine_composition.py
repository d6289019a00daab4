"""The second half of the composition root: the engine with its ports to models, MCP servers, telemetry, notifications.

Imports all modules of the agent, so import it late: see `server.LazyEngine`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

import anyio
from anyio.abc import TaskGroup
from msgspec import Struct

from app_server import PROTOCOL_VERSION
from app_server.engine.auth import mcp_tokens, oauth_http
from app_server.engine.auth.auth_manager import AuthManager
from app_server.engine.auth.credentials import AuthMethod
from app_server.engine.checkpoints import service
from app_server.engine.client_context import ActiveClient, ClientContext
from app_server.engine.config.config_values import OPENAI, Config, OtelExporter
from app_server.engine.engine import Engine, EngineServices
from app_server.engine.http.address import network_settings
from app_server.engine.mcp.mcp_manager import McpManager
from app_server.engine.mcp.runtime_interface import DISCOVERS_FIRST, McpRuntime
from app_server.engine.model import available_providers, discovery
from app_server.engine.model.known_models import KnownModels
from app_server.engine.model.model_client import ModelClient, Pacing
from app_server.engine.model.model_facts import ModelFacts
from app_server.engine.model.quirks import Lessons
from app_server.engine.model.served_models import ModelsUnknown, ServedModels
from app_server.engine.ports import ProcessEnvironment
from app_server.engine.sandbox.exec.command_runner import CommandRunner
from app_server.engine.session.session_servers import Elicitations
from app_server.engine.session.session_services import TurnCompleted
from app_server.engine.support.lazy import Lazy
from app_server.engine.system_ports import ModelHttp
from app_server.engine.telemetry import notify
from app_server.engine.telemetry.telemetry_events import (
    NO_TELEMETRY,
    ConversationFacts,
    ConversationTelemetry,
    TelemetryExport,
    open_export,
)
from app_server.engine.tools.registry import BUILTIN_NAMES
from app_server.engine.workspace.git.run_git import Git
from app_server_protocol.engine.events import McpServerStateChanged
from app_server_protocol.ids import ConversationId
from app_server_protocol.values import replace

if TYPE_CHECKING:
    from app_server.engine.auth.mcp_tokens import McpTokenSource
    from app_server.engine.context.skills.skill_catalog import SkillCatalog
    from app_server.engine.mcp.mcp_requests import McpRequests
    from app_server.engine.model.model_client import RequestGate

AUTH_MODES = {AuthMethod.API_KEY: "ApiKey", AuthMethod.CHATGPT: "ChatGPT"}
"""Names of the login methods in telemetry, which dashboards use."""


class Models(Struct, frozen=True):
    """Creates the model clients of conversations; those of one network share connections."""

    networks: Networks
    auth: AuthManager
    jitter: Callable[[], float]
    known: KnownModels
    lessons: Lessons
    """Facts learnt from refused requests; one object for all conversations."""
    gate: RequestGate | None = None

    def of(self, config: Config, telemetry: ConversationTelemetry, caller: ActiveClient) -> ModelClient:
        client = ModelClient(
            config.provider,
            self.networks.of(caller.environment),
            env=caller.environment,
            identity=caller.caller.identity(),
            login=self.auth.with_keys(caller.api_keys, caller.first_api_keys).under(config.login),
            pacing=Pacing(self.jitter, self.gate),
            lessons=self.lessons,
            watch=None if telemetry is NO_TELEMETRY else telemetry.api_request,
        )
        client.known = ConversationsProvider(self, config, caller)
        return client


class ConversationsProvider(Struct, frozen=True):
    """Facts about the provider of one conversation."""

    models: Models
    config: Config
    caller: ActiveClient

    async def offer(self, model: str) -> str:
        return await self.models.known.offer(self.config, self.caller, model)

    async def elsewhere(self) -> str:
        """Return the alternatives for the user if the provider is OpenAI itself and no setting names it, else ""."""
        if self.config.provider.id != OPENAI or self.config.provider.base_url is not None:
            return ""
        environment = self.caller.environment
        http, identity = self.models.networks.of(environment), self.caller.caller.identity()
        found: str = await available_providers.other_providers(http, environment, identity)
        return found

    def saw_list(self, etag: str) -> None:
        self.models.known.saw_list(self.config, self.caller, etag)


class ModelQuestions(Struct, frozen=True):
    """Requests the lists of models from providers, with the login of the client that uses the server."""

    networks: Networks
    auth: AuthManager

    async def ask(self, config: Config, caller: ActiveClient) -> ServedModels | ModelsUnknown:
        """Request the models from the provider of a configuration. Raises AuthError."""
        environment, provider = caller.environment, config.provider
        source = discovery.Discovery(
            provider,
            self.networks.of(environment),
            env=environment,
            identity=caller.caller.identity(),
            login=await self._logins(config, caller).credentials() if provider.requires_openai_auth else None,
        )
        answer: ServedModels | ModelsUnknown = await source.ask(config.thread.model)
        return answer

    def account(self, config: Config, caller: ActiveClient) -> str:
        """Return the account with which a provider is asked; empty without a login."""
        found = self._logins(config, caller).stored_credentials()
        return "" if found is None else f"{found.method.value} {found.account_id or ''}".strip()

    def _logins(self, config: Config, caller: ActiveClient) -> AuthManager:
        return self.auth.with_keys(caller.api_keys, caller.first_api_keys).under(config.login)


class Networks:
    """Connections to models, shared by all clients whose environments have the same network settings."""

    def __init__(self, open: Callable[[Mapping[str, str]], ModelHttp]) -> None:
        self._open = open
        self._opened: dict[frozenset[tuple[str, str]], ModelHttp] = {}

    def of(self, environment: Mapping[str, str]) -> ModelHttp:
        key = network_settings(environment)
        if key not in self._opened:
            self._opened[key] = self._open(environment)
        return self._opened[key]

    async def aclose(self) -> None:
        for each in self._opened.values():
            await each.aclose()


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


class Assembled(Struct, frozen=True):
    engine: Engine
    models: Models
    adapters: EngineAdapters


def assemble(
    process: ProcessEnvironment,
    open_http: Callable[[Mapping[str, str]], ModelHttp],
    runner: CommandRunner,
    git: Git,
    auth: AuthManager,
    background: TaskGroup,
    skills: Lazy[SkillCatalog],
) -> Assembled:
    questions = ModelQuestions(Networks(open_http), auth)
    lessons = Lessons()
    known = KnownModels(auth.home, questions.ask, questions.account, background, process.wall_clock, lessons)
    models = Models(questions.networks, auth, process.jitter, known, lessons, process.gate)
    adapters = EngineAdapters(process, runner, auth, background)
    services = EngineServices(
        process=process,
        runner=runner,
        checkpoints=Lazy(lambda: service.Checkpoints(git, process.new_conversation_id, process.wall_clock)),
        skills=skills,
        model=models.of,
        known_models=known,
        mcp=adapters.mcp,
        telemetry=adapters.telemetry,
        turn_completed=adapters.turn_completed,
    )
    return Assembled(Engine(services), models, adapters)
