"""The engine of a server, loaded with its first conversation, or earlier if no client would have to wait for it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

import anyio
from anyio.abc import TaskGroup
from msgspec import Struct

from app_server.engine.client_context import ActiveClient, ClientContext
from app_server.engine.config.config_values import Config
from app_server.engine.sandbox.exec.command_runner import CommandRunner
from app_server.engine.support.engine_errors import CoreError
from app_server.engine.support.worker_threads import run_in_thread
from app_server.engine.thread_origin import OpenedConversation, Origin

if TYPE_CHECKING:
    from app_server.engine.engine import Engine
    from app_server.engine.mcp.mcp_requests import McpRequests
    from app_server.engine.model.model_facts import ModelFacts
    from app_server.server.engine_adapters import EngineAdapters
    from app_server.server.model_clients import Models

log = logging.getLogger(__name__)

PREPARED_AFTER = 0.5
"""Delay between the first conversation and the preparation of turns and commands, in seconds: a turn that begins at
once goes first, and has usually sent its request to the model by then. An earlier turn or command does not wait for the
preparation.
"""


class Assembled(Struct, frozen=True):
    """The engine, with the parts of it that serve requests about no conversation."""

    engine: Engine
    models: Models
    adapters: EngineAdapters


class LazyEngine:
    """Opens conversations and lists models. The first use loads and assembles the engine, in the event loop, so that
    responses keep the order of their requests.
    """

    def __init__(
        self,
        assemble: Callable[[], Assembled],
        runner: CommandRunner,
        environment: Mapping[str, str],
        background: TaskGroup,
    ) -> None:
        """Begin without an engine. `environment` is the server's."""
        self._assemble, self._runner, self._environment = assemble, runner, environment
        self._background = background
        self._assembled: Assembled | None = None
        self._opened = False

    async def open(self, config: Config, origin: Origin, caller: ClientContext) -> OpenedConversation:
        """Open a conversation as `Engine.open` does. The first one is usually followed by a turn, so prepare for it."""
        config = await self.with_model(config, caller)
        opened = await self._ready().engine.open(config, origin, caller)
        if not self._opened:
            self._opened = True
            self._background.start_soon(self._prepare, caller, name="turns, launcher and sandbox probe")
        return opened

    async def with_model(self, config: Config, caller: ClientContext) -> Config:
        """Return a configuration with its model chosen. Raises ConfigError if no model can be."""
        return await self._ready().models.known.with_model(config, ActiveClient(caller, self._environment))

    def known_models(self, config: Config, caller: ClientContext) -> ModelFacts:
        """Return the facts known about the models of a configuration, without a request to the provider. Raises
        ConfigError.
        """
        return self._ready().models.known.facts(config, ActiveClient(caller, self._environment))

    async def models(self, config: Config, caller: ClientContext) -> ModelFacts:
        """Return the facts about the models of a configuration. Raises ConfigError."""
        return await self._ready().models.known.listed(config, ActiveClient(caller, self._environment))

    def mcp_alone(self, config: Config, caller: ClientContext) -> AbstractAsyncContextManager[McpRequests]:
        """Run MCP servers that belong to no conversation, until the block ends."""
        return self._ready().adapters.mcp_alone(config, caller)

    async def prepare(self) -> None:
        """Do the work now that a server with a single client delays, because that client would have to wait."""
        self._opened = True
        assembled = self._ready()
        assembled.engine.load_turns()
        await self._probe_sandbox()
        await assembled.models.networks.of(self._environment).warm_up()

    async def aclose(self) -> None:
        if self._assembled is not None:
            await self._assembled.models.networks.aclose()
            await self._assembled.adapters.close()

    async def _prepare(self, caller: ClientContext) -> None:
        """Load turns, start the launcher and probe the sandbox. An error of commands occurs again, and is reported, at
        the first one.
        """
        await anyio.sleep(PREPARED_AFTER)
        await run_in_thread(self._ready().engine.load_turns)
        network = ActiveClient(caller, self._environment).environment
        await self._ready().models.networks.of(network).warm_up()
        await self._probe_sandbox()

    async def _probe_sandbox(self) -> None:
        try:
            self._runner.warm_up()
            await self._runner.sandbox.state()
        except (CoreError, OSError) as error:
            log.warning("the sandbox probe failed ahead of the first command: %s", error)

    def _ready(self) -> Assembled:
        if self._assembled is None:
            self._assembled = self._assemble()
        return self._assembled
