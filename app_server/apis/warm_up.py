"""Makes ready, once a client is there, what its first turn needs. Nobody waits for it, and nothing depends on it."""

from __future__ import annotations

import logging
from typing import Protocol

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from app_server.core.config.types import Config
from app_server.core.errors import CoreError
from app_server.core.exec.runner import CommandRunner
from protocol.events.commands import Duration, ExecCommandBeginEvent, ExecCommandEndEvent, UnknownCommand
from protocol.responses import FunctionCall, FunctionCallOutput, FunctionCallOutputPayload

log = logging.getLogger(__name__)

QUIET_SECONDS = 0.5
"""So long what a client asks first, as a rule for its stored conversations, has the processor for itself; less where it
opens one.
"""

SHAPES_OF_COMMANDS = (
    FunctionCall,
    UnknownCommand,
    ExecCommandBeginEvent,
    Duration,
    ExecCommandEndEvent,
    FunctionCallOutputPayload,
    FunctionCallOutput,
)
"""What the first command would have to wait for, as validators are built on first use."""


class ProviderModels(Protocol):
    """Asks a provider what models it has."""

    async def names(self, config: Config) -> tuple[str, ...]:
        """Empty where it cannot be asked."""
        ...

    async def warm_up(self) -> None: ...


class WarmUp:
    """Of one server."""

    def __init__(self, runner: CommandRunner, models: ProviderModels, background: TaskGroup) -> None:
        self._runner, self._models, self._background = runner, models, background
        self._turns_ahead = anyio.Event()

    def start(self) -> None:
        self._background.start_soon(self._commands, name="warm-up of commands")
        self._background.start_soon(self._engine, name="warm-up of the engine")

    def turns_ahead(self) -> None:
        """A conversation was opened, so turns are to be expected soon."""
        self._turns_ahead.set()

    async def _commands(self) -> None:
        """Other processes do most of it. What fails here the first command meets again, and tells its user."""
        try:
            self._runner.warm_up()
            await self._runner.sandbox_state()
        except (CoreError, OSError) as error:
            log.warning("the sandbox could not be tried ahead of the first command: %s", error)

    async def _engine(self) -> None:
        with anyio.move_on_after(QUIET_SECONDS):
            await self._turns_ahead.wait()
        self._background.start_soon(self._load_models, name="warm-up of models")
        for shape in SHAPES_OF_COMMANDS:
            shape.model_rebuild()
            await anyio.lowlevel.checkpoint()

    async def _load_models(self) -> None:
        try:
            await self._models.warm_up()
        except Exception:  # a conversation that needs them tries again, and tells its client
            log.exception("the engine could not be loaded ahead of the first conversation")
