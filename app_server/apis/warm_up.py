"""Prepares the first turn once a client has initialized. It is only an optimisation: nothing depends on it."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from app_server.core.config.types import Config
from app_server.core.errors import CoreError
from app_server.core.exec.runner import CommandRunner
from protocol.base import Model
from protocol.responses import FunctionCall, FunctionCallOutput, FunctionCallOutputPayload

log = logging.getLogger(__name__)

QUIET_SECONDS = 0.5
"""How long the client's first requests, usually for stored conversations, have the processor to themselves. Opening a
conversation ends the delay.
"""

BETWEEN_OPENINGS = 0.02
"""Seconds. A client that opens one conversation upon another has the processor to itself: nothing is loaded then."""

COMMAND_EVENT_MODELS: tuple[type[Model], ...] = (
    FunctionCall,
    FunctionCallOutputPayload,
    FunctionCallOutput,
)
"""Models whose validators the first command would otherwise build."""


class ProviderModels(Protocol):
    """Lists the models of a provider."""

    async def names(self, config: Config) -> tuple[str, ...]:
        """Empty if the request fails."""
        ...

    async def warm_up(self) -> None: ...


class WarmUp:
    """The warm-up of one server."""

    def __init__(self, runner: CommandRunner, models: ProviderModels, background: TaskGroup) -> None:
        self._runner, self._models, self._background = runner, models, background
        self._turn_expected = anyio.Event()
        self._free_at = 0.0
        self._postponing = 0
        self._go_on = anyio.Event()

    def start(self) -> None:
        self._background.start_soon(self._commands, name="warm-up of commands")
        self._background.start_soon(self._engine, name="warm-up of the engine")

    def expect_turn(self) -> None:
        """A conversation was opened, so a turn will probably follow soon."""
        self._turn_expected.set()

    @contextmanager
    def opening(self) -> Iterator[None]:
        """Inside, a conversation is opened: a turn will probably follow soon, or another conversation at once."""
        self.expect_turn()
        with self.postponed():
            yield
            self._free_at = anyio.current_time() + BETWEEN_OPENINGS

    @contextmanager
    def postponed(self) -> Iterator[None]:
        """Inside, a request has the processor to itself for longer than the usual delay."""
        self._postponing += 1
        try:
            yield
        finally:
            self._postponing -= 1
            if not self._postponing:
                self._go_on.set()
                self._go_on = anyio.Event()

    async def _commands(self) -> None:
        """Other processes do most of the work. An error here will occur again, and be reported, at the first
        command.
        """
        try:
            self._runner.warm_up()
            await self._runner.sandbox_state()
        except (CoreError, OSError) as error:
            log.warning("the sandbox probe failed ahead of the first command: %s", error)

    async def _engine(self) -> None:
        with anyio.move_on_after(QUIET_SECONDS):
            await self._turn_expected.wait()
        await self._until_free()
        self._background.start_soon(self._load_models, name="warm-up of models")
        await _build(COMMAND_EVENT_MODELS)

    async def _until_free(self) -> None:
        """Until no long request is served, and no conversation was opened a moment ago."""
        while True:
            rest = self._free_at - anyio.current_time()
            if self._postponing:
                await self._go_on.wait()
            elif rest > 0:
                await anyio.sleep(rest)
            else:
                return

    async def _load_models(self) -> None:
        try:
            await self._models.warm_up()
        except Exception:  # opening a conversation tries again, and reports the error
            log.exception("loading the engine ahead of the first conversation failed")


async def _build(models: Iterable[type[Model]]) -> None:
    for model in models:
        model.model_rebuild()
        await anyio.lowlevel.checkpoint()
