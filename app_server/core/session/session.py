"""The actor: operations go in, events come out, one task runs at a time.

Owns the order of operations and the life of the session. What an operation means is in `operations`, its parts are
`turns` (by their ids), `goal`, `servers` (MCP), `terminals` and `facts`, which is all that can be read of it from
outside. Nothing here knows of the wire.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import anyio

from app_server.core.config.types import Config
from app_server.core.context.compacted_history import collect_user_messages
from app_server.core.errors import CoreError
from app_server.core.lazy import Lazy
from app_server.core.session.services import Services, SessionState
from app_server.core.session.session_servers import SessionServers
from app_server.core.session.task_runner import TaskRunner
from app_server.core.session.tasks import ActiveTask, OperationQueue, PendingOperation
from app_server.core.session.turn_requests import InterruptTurn, TurnRequest
from app_server.core.session.turns import Actor, SessionGoal, TurnControl
from app_server.core.tools.editor_access import EditorAccess
from app_server.core.turn.emitter import OperationEmitter
from app_server.core.turn.settings import Settings
from app_server.core.turn.transcript import StoredTranscript
from protocol.engine.events import Goal, SessionEvent
from protocol.engine.questions import ClientAnswer
from protocol.events.notices import ErrorEvent, ShutdownCompleteEvent, WarningEvent
from protocol.events.turn import TokenUsageInfo
from protocol.ops import InterruptOp, Op, ShutdownOp
from protocol.responses import ResponseItem


class SessionFacts:
    def __init__(self, services: Services, state: SessionState) -> None:
        self._services, self._state = services, state

    @property
    def settings(self) -> Settings:
        """What the next turn starts from."""
        return self._state.settings

    @property
    def config(self) -> Config:
        """With which it was opened; its settings may have changed since."""
        return self._services.conversation.config

    @property
    def rollout_path(self) -> Path | None:
        """None: it is not stored."""
        return self._services.conversation.rollout_path

    @property
    def usage(self) -> TokenUsageInfo | None:
        """None: no request has reported any."""
        return self._state.tokens.info

    @property
    def instruction_sources(self) -> tuple[str, ...]:
        """The files with instructions that the model was sent."""
        return self._services.conversation.instructions.sources

    @property
    def first_words(self) -> str:
        """What the user said first; "" before that."""
        return next(iter(collect_user_messages(self._state.history.items)), "")

    async def history_metadata(self) -> tuple[int, int]:
        """Of the message history that all conversations share: which file it is, and how many entries it has."""
        return await self._services.messages.metadata()


log = logging.getLogger(__name__)


def _load_perform() -> Callable[[Actor, PendingOperation], Awaitable[None]]:
    from app_server.core.session.operations import perform  # noqa: PLC0415 - all of a turn hangs on it

    return perform


PERFORM = Lazy(_load_perform)
"""Carries operations out. Loaded with the first one, or while nobody waits: a conversation is opened without it."""


class Session:
    """One conversation, alive."""

    def __init__(self, services: Services, state: SessionState, close: Callable[[], None]) -> None:
        """`close` lets the stored file go, once the session has ended."""
        self._services, self._state, self._close = services, state, close
        self._queue = OperationQueue(services.sources.new_turn_id)
        self._tasks = TaskRunner(services, state, self._queue, lambda: self.goal.request_turn())
        self.turns = TurnControl(self._queue, self._tasks)
        self.goal = SessionGoal(services, state, self._queue, self._tasks)
        self.servers = SessionServers(services.mcp, services.outbox)
        self.facts = SessionFacts(services, state)
        self.terminals = services.commands.terminals
        self.terminals.running_turn = self._tasks.started_turn
        services.elicitations.running_turn = self._tasks.started_turn
        self._actor = Actor(services, state, self._queue, self._tasks, self.turns)
        self.ended = anyio.Event()

    # --- from outside
    def submit(self, id: str, op: Op | ClientAnswer | TurnRequest) -> str:
        """Queue an operation; returns the id of the turn that it begins, if it begins one. Raises CoreError.

        Its events carry `id`, which the caller makes and uses once.
        """
        return self._queue.submit(id, op)

    @property
    def active(self) -> ActiveTask | None:
        """The task that runs."""
        return self._tasks.active

    @property
    def busy(self) -> bool:
        """Whether something runs or is about to, or a command goes on."""
        return self.active is not None or len(self._queue) > 0 or len(self.terminals) > 0

    async def events(self) -> list[SessionEvent]:
        """The events since the last call, waiting for the first; empty once the session has ended."""
        return await self._services.outbox.take()

    def give_back(self, events: Sequence[SessionEvent]) -> None:
        """Events that were taken and that nobody wants any more; they come first the next time."""
        self._services.outbox.give_back(events)

    def store(self) -> None:
        """What was emitted so far is in its file from now on."""
        self._services.outbox.store()

    def store_identity(self) -> None:
        """From now on turns and items are stored with their ids and times."""
        outbox = self._services.outbox
        if outbox.identity:
            return
        outbox.identity = True
        if self.active is not None:
            outbox.record(self.active.emitter.late_start_line())

    def use_editor(self, editor: EditorAccess) -> None:
        """From now on patches take into account what the client's editor has open."""
        self._services.commands.editor = editor

    # --- before it runs
    def begin_with(self, id: str, items: Sequence[ResponseItem]) -> None:
        """The first items of its history, which are stored at once."""
        outbox = self._services.outbox
        StoredTranscript(self._state.history, outbox).record(OperationEmitter(outbox, id), items)
        outbox.store()

    def restore(
        self, items: Sequence[ResponseItem], goal: Goal | None, settings: Settings | None = None
    ) -> None:
        """The history and the goal of a stored conversation; no turn begins for the goal before the user asks for work.

        `settings`: None for those of the configuration.
        """
        self._state.history.replace(items)
        self._state.goals.goal = goal
        if settings is not None:
            self._state.settings = settings

    def restore_usage(self, stored: TokenUsageInfo | None) -> None:
        """Count on from what a stored conversation used so far; without this, counting begins anew."""
        self._state.tokens.info = stored

    def warn(self, id: str, message: str) -> None:
        self._services.outbox.emit(id, WarningEvent(message=message))

    # --- its life
    async def run(self) -> None:
        """Carry out operations until `shutdown` or cancellation; what was emitted until then is stored."""
        try:
            async with anyio.create_task_group() as group:
                self._tasks.use(group)
                group.start_soon(self._services.outbox.run, name="outbox")
                group.start_soon(self._serve, name="operations")
                self.servers.start(group)
                await self.ended.wait()
                group.cancel_scope.cancel()
        finally:
            self._end()
            self.servers.stop()
            # Also where the writer was cancelled first: the last words are stored.
            self._services.outbox.store()
            self._services.outbox.close()
            self._close()
            self._services.commands.roots.close()
            await self.terminals.close()

    async def _serve(self) -> None:
        while not self.ended.is_set():
            pending = await self._queue.take()
            match pending.op:
                case InterruptOp():
                    await self._tasks.interrupt()
                case InterruptTurn(turn_id=turn_id):
                    await self._tasks.interrupt_turn(turn_id)
                case ShutdownOp():
                    await self._shut_down(pending.id)
                case _:
                    await self._perform(pending)
            self._queue.done()

    async def _perform(self, pending: PendingOperation) -> None:
        outbox = self._services.outbox
        try:
            await PERFORM.get()(self._actor, pending)
        except CoreError as error:
            outbox.emit(pending.id, ErrorEvent(message=str(error)))
        except Exception as error:
            log.exception("operation %s", getattr(pending.op, "type", type(pending.op).__name__))
            outbox.emit(pending.id, ErrorEvent(message=f"internal error: {type(error).__name__}"))

    async def _shut_down(self, id: str) -> None:
        await self._tasks.interrupt()
        outbox = self._services.outbox
        await outbox.flush()
        outbox.emit(id, ShutdownCompleteEvent())
        outbox.store()
        self._end()

    def _end(self) -> None:
        self._queue.close()
        self.ended.set()
