"""Runs the hooks of one turn, or of a thread outside of turns: the handlers of an event at the same time, one decision
of all of them, and an event for the begin and for the end of each run. Context that they add becomes messages for the
model; a long one is cut, and the whole of it is in a file that the model may read.
"""

from __future__ import annotations

import logging
import math
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from anyio.abc import TaskGroup

from app_server.engine.hooks.context_files import cut_context
from app_server.engine.hooks.decision import (
    NO_DECISION,
    HookContext,
    HookDecision,
    HookResult,
    decide,
    run_status,
)
from app_server.engine.hooks.hook_definitions import (
    LAST_SECONDS,
    HookHandler,
    HookTrust,
    LoadedHooks,
)
from app_server.engine.hooks.hook_input import HookTurn
from app_server.engine.hooks.hook_output import HookFailure, HookOutput
from app_server.engine.hooks.run_hooks import RunHandler
from app_server_protocol.encoding import Json
from app_server_protocol.engine.events import EngineEvent
from app_server_protocol.engine.hook_events import HookEvent, HookHandlerType, HookRole, HookRunStatus
from app_server_protocol.engine.hook_runs import HookCompleted, HookRun, HookStarted
from app_server_protocol.engine.notices import WarningNotice
from app_server_protocol.responses import InputText, MessageItem
from app_server_protocol.values import replace

log = logging.getLogger(__name__)


class ActiveHooks:
    """The hooks of one turn."""

    def __init__(
        self,
        hooks: LoadedHooks,
        turn: Callable[[], HookTurn],
        runners: Mapping[HookHandlerType, RunHandler],
        emit: Callable[[EngineEvent], None],
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
        home: Path,
    ) -> None:
        """`turn` returns the fields of all inputs. `runners`: what runs the handlers of each type. `home`: where
        contexts that are cut stay whole.
        """
        self.hooks, self._home = hooks, home
        self._turn, self._runners, self._emit = turn, runners, emit
        self._clock, self._wall_clock = clock, wall_clock
        self._beside: TaskGroup | None = None
        self._runs: dict[str, int] = {}
        """Number of runs so far, by id without their number."""
        self.stop: str | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Let handlers that nobody waits for run while the block does, and a little longer."""
        async with anyio.create_task_group() as self._beside:
            try:
                yield
            finally:
                group, self._beside = self._beside, None
                group.cancel_scope.deadline = anyio.current_time() + LAST_SECONDS

    def has(self, event: HookEvent) -> bool:
        return bool(self.hooks.runnable(event))

    async def run(
        self,
        event: HookEvent,
        own: Mapping[str, Json],
        *names: str,
        call_id: str | None = None,
        without: HookHandler | None = None,
    ) -> HookDecision:
        handlers = tuple(each for each in self.hooks.runnable(event, *names) if each is not without)
        if not handlers:
            return NO_DECISION
        decision = await self.run_handlers(handlers, event, own, call_id)
        for warning in decision.warnings:
            self._emit(WarningNotice(message=warning))
        if self.stop is None and decision.stop is not None:
            self.stop = decision.stop
            self._emit(WarningNotice(message=decision.stop))
        return decision

    async def run_handlers(
        self,
        handlers: tuple[HookHandler, ...],
        event: HookEvent,
        own: Mapping[str, Json],
        call_id: str | None,
    ) -> HookDecision:
        """Run these handlers, and return the decision of those that somebody waits for."""
        fields = self._turn().fields(event, own)
        found: dict[int, HookResult] = {}

        async def take(order: int, handler: HookHandler) -> None:
            found[order] = await self._run(handler, fields, call_id)

        async with anyio.create_task_group() as group:
            for order, handler in enumerate(handlers):
                if not handler.definition.is_async:
                    group.start_soon(take, order, handler, name=f"hook {event}")
                elif self._beside is not None:
                    self._beside.start_soon(self._run, handler, fields, call_id, name=f"hook {event}")
        return decide(event, [found[order] for order in sorted(found)], self.hooks)

    async def _run(self, handler: HookHandler, fields: Mapping[str, Json], call_id: str | None) -> HookResult:
        began = self._clock()
        run = HookRun(
            id=self._run_id(handler, call_id),
            event=handler.event,
            handler_type=handler.definition.type,
            source=handler.source,
            source_path=handler.source_path,
            display_order=handler.display_order,
            is_async=handler.definition.is_async,
            of_thread=handler.event.has(HookRole.OF_THREAD),
            status_message=handler.definition.status_message,
            status=HookRunStatus.RUNNING,
            started_at=int(self._wall_clock()),
        )
        self._emit(HookStarted(run))
        ended = replace(run, status=HookRunStatus.FAILED)
        try:
            result = HookResult(run.id, handler, await self._outcome(handler, fields))
            status, entries = run_status(handler.event, result)
            ended = replace(run, status=status, entries=entries)
            return result
        finally:
            took = round((self._clock() - began) * 1000)
            self._emit(HookCompleted(replace(ended, completed_at=int(self._wall_clock()), duration_ms=took)))

    async def _outcome(self, handler: HookHandler, fields: Mapping[str, Json]) -> HookOutput | HookFailure:
        limit = LAST_SECONDS if handler.event.has(HookRole.SHORT) else math.inf
        if handler.trust is HookTrust.LAPSED:
            return HookFailure("changed since you agreed to it, and was not run (`/hooks` shows it)")
        runner = self._runners.get(handler.definition.type)
        if runner is None:
            return HookFailure(f"is of the type `{handler.definition.type.value}`, which does not run")
        try:
            with anyio.move_on_after(limit):
                return await runner(handler, fields)
            return HookFailure(f"did not end within {LAST_SECONDS:g} s")
        except Exception as error:
            # A bug must not pass for the agreement of a guard.
            log.exception("hook %s", handler.key)
            return HookFailure(f"failed unexpectedly ({type(error).__name__})")

    def context_messages(self, contexts: Sequence[HookContext]) -> tuple[MessageItem, ...]:
        """Return one developer message for each context. Writes files in the home for long ones."""
        return tuple(
            developer_text(cut_context(context, self._home, self._turn().session_id)) for context in contexts
        )

    def _run_id(self, handler: HookHandler, call_id: str | None) -> str:
        """Return the id of a run. A second run of the same handler for the same call has a number of its own, since
        every run begins once and ends once.
        """
        name = handler.event.snake.replace("_", "-")
        id = f"{name}:{handler.display_order}:{handler.source_path}"
        if call_id is not None:
            id = f"{id}:{call_id}"
        number = self._runs[id] = self._runs.get(id, 0) + 1
        return id if number == 1 else f"{id}:{number}"


def developer_text(text: str) -> MessageItem:
    return MessageItem(role="developer", content=(InputText(text=text),))
