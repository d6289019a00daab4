"""Replacing the history by a summary of it, within a turn or as a task of its own."""

from __future__ import annotations

from app_server.core.context.environment_context import environment_of, opening_messages, user_text
from app_server.core.context.history import (
    ConversationHistory,
    build_compacted_history,
    collect_user_messages,
    estimate_history,
)
from app_server.core.context.instructions import instruction_text
from app_server.core.errors import ContextWindowExceeded, CoreError
from app_server.core.session.model_calls import RequestShape, model_call, shape_of
from app_server.core.session.services import Turn
from app_server.core.session.tasks import ActiveTask, SessionTask
from app_server.core.turn.items import last_assistant_text
from app_server.core.turn.outbox import Transcript
from app_server_protocol.engine.events import TurnKind
from app_server_protocol.engine.items import ContextCompaction
from app_server_protocol.events.notices import WarningEvent
from app_server_protocol.events.turn import TokenCountEvent
from app_server_protocol.responses import GhostSnapshot
from app_server_protocol.rollout import CompactedItem

LESS_ACCURATE = (
    "Heads up: Long conversations and multiple compactions can cause the model to be less accurate. "
    "Start a new conversation when possible to keep conversations small and targeted."
)


async def compact(turn: Turn, shape: RequestShape) -> None:
    """Ask for a summary and put it in the history's place. Raises ModelError; then nothing has changed."""
    item = ContextCompaction(turn.services.sources.new_turn_id())
    turn.emitter.start(item)
    try:
        await _compact(turn, shape)
    except CoreError:
        turn.emitter.cut(item.id)
        raise
    turn.emitter.complete(item)
    turn.emitter.emit(WarningEvent(message=LESS_ACCURATE))


async def _compact(turn: Turn, shape: RequestShape) -> None:
    conversation, state, outbox = turn.services.conversation, turn.services.state, turn.services.outbox
    before = list(state.history.items)
    summary = await _summary(turn, shape)
    # What was recorded while the model wrote, as the output of a command of the user: the summary knows nothing of it.
    meanwhile = state.history.items[len(before) :]
    opening = opening_messages(
        environment_of(turn.settings, conversation.instructions.shell),
        developer=conversation.config.instructions.developer,
        agents=conversation.instructions.agents,
    )
    rebuilt = build_compacted_history(opening, collect_user_messages(before), summary)
    # Snapshots are no memory of the model's; an undo still needs them.
    rebuilt += [item for item in before if isinstance(item, GhostSnapshot)]
    rebuilt += meanwhile
    state.history.replace(rebuilt)
    state.tokens.estimate(estimate_history(rebuilt, shape.instructions), shape.context_window)
    turn.emitter.emit(TokenCountEvent(info=state.tokens.info, rate_limits=state.tokens.rate_limits))
    outbox.record(CompactedItem(message=summary))
    outbox.record_items(meanwhile)


async def _summary(turn: Turn, shape: RequestShape) -> str:
    prompt = turn.services.conversation.config.instructions.compact_prompt or instruction_text("compact")
    scratch = ConversationHistory([*turn.services.state.history.for_prompt(), user_text(prompt)])
    call = model_call(turn, shape, Transcript(scratch, None))
    while True:
        try:
            reply = await call.request(lambda: shape.prompt(scratch.for_prompt(), (), None))
        except ContextWindowExceeded:
            if len(scratch) <= 1:
                raise
            # The oldest goes first: it is what the summary can best do without.
            scratch.replace(scratch.items[1:])
            continue
        return last_assistant_text(reply.items(turn.services.sources.clock())) or ""


class CompactTask(SessionTask):
    """A compaction that the user asked for."""

    kind = TurnKind.COMPACT

    async def run(self, active: ActiveTask) -> str | None:
        shape = shape_of(self.turn)
        self.turn.emitter.turn_started(self.kind, shape.context_window)
        await compact(self.turn, shape)
        return None
