"""The session as an actor: commands go in, events come out, and one task runs at a time.

Owns the order of commands and the life of the session. The effect of each command is in `operations`; the interface for
callers is in `handle`. Nothing here knows of the wire.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import anyio

from app_server.engine.session import hook_steps, initial_context, operations
from app_server.engine.session.modes import told_mode
from app_server.engine.session.operation_queue import OperationQueue
from app_server.engine.session.session_commands import Close, Review, StartTurn
from app_server.engine.session.session_servers import SessionServers
from app_server.engine.session.session_services import SessionServices
from app_server.engine.session.tasks import TaskRunner
from app_server.engine.session.turn_control import SessionGoal, TurnControl
from app_server.engine.support.engine_errors import CoreError
from app_server.engine.turn.emitter import OperationEmitter
from app_server_protocol.engine.events import Goal
from app_server_protocol.engine.notices import ErrorNotice, SessionClosed, WarningNotice
from app_server_protocol.engine.thread_settings import ThreadSettings
from app_server_protocol.engine.token_usage import TokenUsageInfo
from app_server_protocol.responses import ResponseItem
from app_server_protocol.rollout import CompactedItem

log = logging.getLogger(__name__)


class Session:
    """One open conversation."""

    def __init__(self, services: SessionServices, close: Callable[[], None]) -> None:
        """`close`: releases the rollout file once the session has ended."""
        self.services, self._close = services, close
        self.queue = OperationQueue(services.sources.new_turn_id)
        self.tasks = TaskRunner(services, self.queue, lambda: self.goal.request_turn())
        self.turns = TurnControl(self.queue, self.tasks)
        self.goal = SessionGoal(self.queue, self.tasks)
        self.servers = SessionServers(services.mcp, services.outbox)
        services.commands.terminals.running_turn = self.tasks.started_turn
        services.elicitations.running_turn = self.tasks.started_turn
        self.ended = anyio.Event()

    # --- before it runs
    def first_items(self) -> list[ResponseItem]:
        """Return the items that a new conversation begins with."""
        return initial_context.first_items(self.services)

    def compacted_again(self, before: Sequence[ResponseItem], line: CompactedItem) -> Sequence[ResponseItem]:
        """Return the history that a stored compaction left. `before`: the history before the compaction."""
        return initial_context.compacted_again(self.services, before, line)

    def begin_with(self, id: str, items: Sequence[ResponseItem]) -> None:
        """Record the first items of the history, which are stored at once."""
        outbox = self.services.outbox
        self.services.state.transcript.record(OperationEmitter(outbox, id), items)
        outbox.store()

    def restore(
        self,
        items: Sequence[ResponseItem],
        goal: Goal | None,
        usage: TokenUsageInfo | None,
        settings: ThreadSettings | None = None,
    ) -> None:
        """Restore the state of a stored conversation. No turn begins for the goal before the user asks for work.

        `usage`: None if tokens are counted from the start. `settings`: None if those of the configuration hold.
        """
        state = self.services.state
        state.history.replace(items)
        state.told_mode, state.is_restored = told_mode(items), True
        state.hooks.start_source = "resume"
        state.goals.goal, state.tokens.info = goal, usage
        if settings is not None:
            state.settings = settings

    def warn(self, id: str, message: str) -> None:
        self.services.outbox.emit(id, WarningNotice(message=message))

    # --- its life
    async def run(self) -> None:
        """Carry out commands until `Close` or cancellation; events that were emitted until then are stored."""
        services = self.services
        try:
            async with anyio.create_task_group() as group:
                self.tasks.use(group)
                group.start_soon(services.outbox.run, name="outbox")
                group.start_soon(self._serve, name="operations")
                self.servers.start(group)
                await self.ended.wait()
                group.cancel_scope.cancel()
        finally:
            self._end()
            self.servers.stop()
            # The last lines are stored even if the writer was cancelled first.
            services.outbox.store()
            services.outbox.close()
            self._close()
            if services.checkpoints.started:
                services.checkpoints.get().forget(services.conversation.id)
            services.commands.roots.close()
            await services.commands.terminals.close()

    async def _serve(self) -> None:
        outbox = self.services.outbox
        while not isinstance((pending := await self.queue.take()).command, Close):
            try:
                await operations.perform(self.turns, pending)
            except CoreError as error:
                outbox.emit(pending.id, ErrorNotice(message=str(error)))
            except Exception as error:
                log.exception("operation %s", type(pending.command).__name__)
                outbox.emit(pending.id, ErrorNotice(message=f"internal error: {type(error).__name__}"))
            self.queue.done()
        await self._shut_down(pending.id)

    async def _shut_down(self, id: str) -> None:
        await self.tasks.interrupt()
        for pending in self.queue:
            if isinstance(pending.command, StartTurn | Review):
                self.tasks.interrupt_waiting(pending)
        outbox = self.services.outbox
        if self.services.state.hooks.last is not None:
            await hook_steps.thread_ends(self.services, id)
        await outbox.flush()
        outbox.emit(id, SessionClosed())
        outbox.store()
        self._end()

    def _end(self) -> None:
        self.queue.close()
        self.ended.set()
