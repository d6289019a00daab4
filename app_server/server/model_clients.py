"""Clients of models for conversations, and requests for the lists of models, over connections that they share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from app_server.engine.auth.auth_manager import AuthManager
from app_server.engine.client_context import ActiveClient
from app_server.engine.config.config_values import OPENAI, Config
from app_server.engine.http.address import network_settings
from app_server.engine.model import available_providers, discovery
from app_server.engine.model.known_models import KnownModels
from app_server.engine.model.model_client import ModelClient, Pacing
from app_server.engine.model.quirks import Lessons
from app_server.engine.model.served_models import ModelsUnknown, ServedModels
from app_server.engine.system_ports import ModelHttp
from app_server.engine.telemetry.telemetry_events import (
    NO_TELEMETRY,
    ConversationTelemetry,
)

if TYPE_CHECKING:
    from app_server.engine.model.model_client import RequestGate


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
