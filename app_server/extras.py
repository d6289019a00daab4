"""What surrounds the agent, put together for the engine: who the client is, MCP servers, what follows a turn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from app_server.core.auth.manager import AuthManager
from app_server.core.config.types import Config
from app_server.core.mcp.contract import ElicitationAnswer, ElicitationRequest, ProcessSpawner
from app_server.core.mcp.manager import McpManager
from app_server.core.mcp.server import McpSurroundings
from app_server.core.model.client import ModelClient
from app_server.core.model.http import LazyHttp
from app_server.core.model.model_list import ModelList, list_models
from app_server.core.model.settings import ClientIdentity
from app_server.core.session.elicitations import Elicitations
from app_server.core.session.services import TurnCompleted
from app_server.core.tools.registry import BUILTIN_NAMES
from app_server.handlers.context import Client
from app_server.handlers.user_agent import UserAgent
from protocol.ids import ConversationId


@dataclass(frozen=True, slots=True)
class Models:
    """Gives each conversation its way to its provider; connections are shared."""

    http: LazyHttp
    auth: AuthManager
    user_agent: UserAgent
    environment: Mapping[str, str] = field(repr=False)

    def of(self, config: Config) -> ModelClient:
        return ModelClient(
            config.provider, self.http, env=self.environment, identity=self.identity(), login=self.auth
        )

    async def names(self, config: Config) -> tuple[str, ...]:
        """The provider's own models; empty where it cannot be asked."""
        login = await self.auth.credentials()
        answer = await list_models(
            config.provider, self.http, env=self.environment, identity=self.identity(), login=login
        )
        return answer.names if isinstance(answer, ModelList) else ()

    async def warm_up(self) -> None:
        await self.http.warm_up()

    def identity(self) -> ClientIdentity:
        return ClientIdentity(originator=self.user_agent.originator, user_agent=self.user_agent.text())


@dataclass(frozen=True, slots=True)
class Surrounding:
    """The engine's `Extras`."""

    user_agent: UserAgent
    client: Client
    environment: Mapping[str, str] = field(repr=False)
    spawner: ProcessSpawner
    after_turn: Callable[[Config, ConversationId, str, Sequence[str], str | None], None]

    def originator(self) -> str:
        return self.user_agent.originator

    def elicitation(self) -> bool:
        return self.client.elicitation

    def mcp(self, config: Config, elicitations: Elicitations) -> McpManager:
        async def elicit(asked: ElicitationRequest) -> ElicitationAnswer:
            answer = await elicitations.ask(asked.server, asked.message, asked.requested_schema)
            return ElicitationAnswer(answer.action, answer.content)

        around = McpSurroundings(
            environment=self.environment,
            cwd=str(config.cwd),
            spawner=self.spawner,
            version=self.user_agent.version,
            elicit=elicit if self.client.elicitation else None,
        )
        return McpManager(config.mcp_servers, around, BUILTIN_NAMES)

    def turn_completed(self, config: Config, conversation_id: ConversationId) -> TurnCompleted:
        def completed(turn_id: str, said: Sequence[str], last: str | None) -> None:
            self.after_turn(config, conversation_id, turn_id, said, last)

        return completed
