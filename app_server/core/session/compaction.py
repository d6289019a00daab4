"""Replacing the history by a summary of it, within a turn or as a task of its own."""

from __future__ import annotations

import logging

from app_server.core.context.compaction import (
    build_compacted_history,
    collect_user_messages,
    estimate_history,
)
from app_server.core.context.environment import user_text
from app_server.core.context.history import ConversationHistory
from app_server.core.context.instructions import opening_messages
from app_server.core.context.prompts import prompt as prompt_text
from app_server.core.errors import ContextWindowExceeded
from app_server.core.session.model_calls import internal_call, shape_of
from app_server.core.session.services import Services
from app_server.core.session.state import SessionState
from app_server.core.session.tasks import ActiveTask
from app_server.core.turn.items import last_assistant_text
from app_server.core.turn.request_shape import RequestShape
from app_server.core.turn.settings import Turn
from app_server.core.turn.transcript import IsolatedTranscript
from protocol.events.messages import AgentMessageEvent
from protocol.events.notices import WarningEvent
from protocol.events.tokens import TokenCountEvent
from protocol.events.turn import TaskStartedEvent
from protocol.responses import GhostSnapshot, ResponseItem
from protocol.rollout import CompactedItem

log = logging.getLogger(__name__)

DONE = "Compact task completed"
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
        history = self._state.history
        summary = await self._summary(history.for_prompt())
        opening = opening_messages(
            self._turn.settings.environment(self._services.instructions.shell),
            developer=self._services.config.developer_instructions,
            agents=self._services.instructions.agents,
        )
        rebuilt = build_compacted_history(opening, collect_user_messages(history.items), summary)
        # Snapshots are no memory of the model's; an undo still needs them.
        rebuilt += [item for item in history.items if isinstance(item, GhostSnapshot)]
        history.replace(rebuilt)
        self._tell(summary, rebuilt)

    async def _summary(self, items: list[ResponseItem]) -> str:
        instruction = user_text(self._services.config.compact_prompt or prompt_text("compact"))
        scratch = ConversationHistory([*items, instruction])
        model_call = internal_call(
            self._services, self._state, self._turn, self._shape, IsolatedTranscript(scratch)
        )
        while True:
            try:
                reply = await model_call.request(lambda: self._shape.prompt(scratch.for_prompt(), (), None))
            except ContextWindowExceeded:
                if len(scratch) <= 1:
                    raise
                # The oldest goes first: it is what the summary can best do without.
                scratch.replace(scratch.items[1:])
                continue
            return last_assistant_text(reply.items(self._services.clock())) or ""

    def _tell(self, summary: str, rebuilt: list[ResponseItem]) -> None:
        outbox, tokens, id = self._services.outbox, self._state.tokens, self._turn.id
        tokens.estimate(estimate_history(rebuilt, self._shape.instructions), self._shape.context_window)
        outbox.emit(id, TokenCountEvent(info=tokens.info, rate_limits=tokens.rate_limits))
        outbox.record(CompactedItem(message=summary))
        outbox.emit(id, AgentMessageEvent(message=DONE))
        outbox.emit(id, WarningEvent(message=LESS_ACCURATE))


class CompactTask:
    """A compaction that the user asked for."""

    def __init__(self, services: Services, state: SessionState, turn: Turn) -> None:
        self._services, self._turn, self._shape = services, turn, shape_of(services, turn)
        self._compactor = Compactor(services, state, turn, self._shape)

    async def run(self, active: ActiveTask) -> str | None:
        started = TaskStartedEvent(model_context_window=self._shape.context_window)
        self._services.outbox.emit(self._turn.id, started)
        await self._compactor.run()
        return None

    def interrupted(self) -> None:
        pass
