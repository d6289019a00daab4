"""What handlers work with: one connection's view of the server. Put together by the composition root."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import field
from pathlib import Path
from typing import Protocol

import anyio
from anyio.abc import TaskGroup

from app_server.conversations.manager import ConversationManager
from app_server.core.auth.login import LoginFlow
from app_server.core.auth.manager import AuthManager
from app_server.core.config.load import load_config
from app_server.core.config.types import CliOverrides, Config, RequestOverrides
from app_server.core.exec.runner import CommandRunner
from app_server.core.files.search import FileSearch
from app_server.core.git.snapshot import Git
from app_server.core.opening import Surroundings
from app_server.handlers.user_agent import UserAgent
from app_server.rpc.outgoing import Outgoing
from protocol.records import dataclass


@dataclass(slots=True, kw_only=True)
class Client:
    """What the client said of itself."""

    initialized: bool = False
    elicitation: bool = False


class ProviderModels(Protocol):
    """Asks a provider what models it has."""

    async def names(self, config: Config) -> tuple[str, ...]:
        """Empty where it cannot be asked."""
        ...

    async def warm_up(self) -> None: ...


@dataclass(slots=True, kw_only=True)
class HandlerContext:
    home: Path
    cwd: Path
    """The server's own working directory, for conversations that name none."""
    cli: CliOverrides
    surroundings: Surroundings
    manager: ConversationManager
    outgoing: Outgoing
    runner: CommandRunner
    auth: AuthManager
    models: ProviderModels
    git: Git
    search: FileSearch
    user_agent: UserAgent
    background: TaskGroup
    """For what goes on after an answer."""
    new_id: Callable[[], str]
    random: Callable[[int], bytes]
    closing: tuple[Callable[[], Awaitable[None]], ...] = ()
    """What is to be ended when the client has left, in this order."""
    client: Client = field(default_factory=Client)
    turns_ahead: anyio.Event = field(default_factory=anyio.Event)
    """Set with the first conversation: what its turns need should be made ready."""
    logins: dict[str, LoginFlow] = field(default_factory=dict)

    async def close(self) -> None:
        for close in self.closing:
            await close()

    def config(self, request: RequestOverrides | None = None) -> Config:
        """The configuration as it is now. Raises ConfigError."""
        return load_config(
            self.home,
            cwd=self.cwd,
            cli=self.cli,
            request=request or RequestOverrides(),
            env=self.surroundings.environment,
        )
