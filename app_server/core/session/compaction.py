"""Replacing the history by a summary of it, within a turn or as a task of its own."""

from __future__ import annotations

import logging

from app_server.core.context.compacted_history import (
    build_compacted_history,
    collect_user_messages,
    estimate_history,
)
from app_server.core.context.environment_context import opening_messages, user_text
from app_server.core.context.history import ConversationHistory
from app_server.core.context.instructions import instruction_text
from app_server.core.errors import ContextWindowExceeded, CoreError
from app_server.core.session.model_calls import RequestShape, model_call, shape_of
from app_server.core.session.services import Services, SessionState
from app_server.core.session.tasks import ActiveTask
from app_server.core.turn.items import last_assistant_text
from app_server.core.turn.outbox import IsolatedTranscript
from app_server.core.turn.settings import Turn
from protocol.engine.events import TurnKind
from protocol.engine.items import ContextCompaction
from protocol.events.notices import WarningEvent
from protocol.events.turn import TokenCountEvent
from protocol.responses import GhostSnapshot, ResponseItem
from protocol.rollout import CompactedItem

log = logging.getLogger(__name__)

LESS_ACCURATE = (
    "Heads up: Long conversations and multiple compactions can cause the model to be less accurate. "
    "Start a new conversation when possible to keep conversations small and targeted."
)


class Compactor:
    """Compacts one session's history under the settings of one turn."""

    def __init__(
        self,
        services: Services,
        state: SessionState,
        turn: Turn,
        shape: RequestShape,
    ) -> None:
        self._services, self._state, self._turn, self._shape = services, state, turn, shape

    async def run(self) -> None:
        """Ask for a summary and put it in the history's place. Raises ModelError; then nothing has changed."""
        item = ContextCompaction(self._services.sources.new_turn_id())
        self._turn.emitter.start(item)
        try:
            await self._compact()
        except CoreError:
            self._turn.emitter.cut(item.id)
            raise
        self._turn.emitter.complete(item)
        self._turn.emitter.emit(WarningEvent(message=LESS_ACCURATE))

    async def _compact(self) -> None:
        history = self._state.history
        summary = await self._summary(history.for_prompt())
        opening = opening_messages(
            self._turn.settings.environment(self._services.conversation.instructions.shell),
            developer=self._services.conversation.config.instructions.developer,
            agents=self._services.conversation.instructions.agents,
        )
        rebuilt = build_compacted_history(opening, collect_user_messages(history.items), summary)
        # Snapshots are no memory of the model's; an undo still needs them.
        rebuilt += [item for item in history.items if isinstance(item, GhostSnapshot)]
        history.replace(rebuilt)
        self._record_summary(summary, rebuilt)

    async def _summary(self, items: list[ResponseItem]) -> str:
        instruction = user_text(
            self._services.conversation.config.instructions.compact_prompt or instruction_text("compact")
        )
        scratch = ConversationHistory([*items, instruction])
        call = model_call(self._services, self._state, self._turn, self._shape, IsolatedTranscript(scratch))
        while True:
            try:
                reply = await call.request(lambda: self._shape.prompt(scratch.for_prompt(), (), None))
            except ContextWindowExceeded:
                if len(scratch) <= 1:
                    raise
                # The oldest goes first: it is what the summary can best do without.
                scratch.replace(scratch.items[1:])
                continue
            return last_assistant_text(reply.items(self._services.sources.clock())) or ""

    def _record_summary(self, summary: str, rebuilt: list[ResponseItem]) -> None:
        tokens = self._state.tokens
        tokens.estimate(estimate_history(rebuilt, self._shape.instructions), self._shape.context_window)
        self._turn.emitter.emit(TokenCountEvent(info=tokens.info, rate_limits=tokens.rate_limits))
        self._services.outbox.record(CompactedItem(message=summary))


class CompactTask:
    """A compaction that the user asked for."""

    kind = TurnKind.COMPACT

    def __init__(self, services: Services, state: SessionState, turn: Turn) -> None:
        self._turn, self._shape = turn, shape_of(services, turn)
        self._compactor = Compactor(services, state, turn, self._shape)

    async def run(self, active: ActiveTask) -> str | None:
        self._turn.emitter.turn_started(TurnKind.COMPACT, self._shape.context_window)
        await self._compactor.run()
        return None

    def interrupted(self) -> None:
        pass
