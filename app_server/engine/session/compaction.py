"""Compaction: the history is replaced by a summary of it, within a turn or as a task of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from app_server.engine.config.config_values import WireApi
from app_server.engine.context.environment_context import user_text
from app_server.engine.context.history import (
    ConversationHistory,
    build_compacted_history,
    collect_user_messages,
    estimate_history,
    without_oldest,
)
from app_server.engine.context.instructions import instruction_text
from app_server.engine.context.sizes import PromptSize
from app_server.engine.context.text_for_model import within_tokens
from app_server.engine.model.prompt import ToolSpec
from app_server.engine.session.head import RequestTemplate
from app_server.engine.session.hooked_task import compact_by_hand
from app_server.engine.session.initial_context import opening_items
from app_server.engine.session.modes import lasting_mode, told_mode
from app_server.engine.session.request_budget import RequestBudget
from app_server.engine.session.session_services import TurnContext
from app_server.engine.session.system_prompt import lasting_prompt
from app_server.engine.session.tasks import SessionTask
from app_server.engine.session.turn_context import (
    model_call,
    offered_tools,
    renew_head,
    shape_of,
    tool_turn_of,
)
from app_server.engine.support.engine_errors import ContextWindowExceeded, CoreError, ModelError
from app_server.engine.tools.runtime import RefusedCalls
from app_server.engine.turn.outbox import Transcript
from app_server.engine.turn.turn_items import last_assistant_text
from app_server_protocol.engine.errors import ErrorClass
from app_server_protocol.engine.events import TurnKind
from app_server_protocol.engine.items import ContextCompaction
from app_server_protocol.engine.notices import TokenUsageUpdated, WarningNotice
from app_server_protocol.responses import GhostSnapshot
from app_server_protocol.rollout import CompactedItem

LESS_ACCURATE = (
    "Heads up: Long conversations and multiple compactions can cause the model to be less accurate. "
    "Start a new conversation when possible to keep conversations small and targeted."
)


NO_CALLS = "Answer with the summary only."
"""Output of a call that the model makes instead of writing a summary."""

MOST_ASKED = 2
"""Maximum number of requests for a summary if the model calls tools instead."""


async def compact(turn: TurnContext, shape: RequestTemplate, specs: Callable[[], Sequence[ToolSpec]]) -> None:
    """Request a summary and replace the history by it. `specs`: the tools of the turn. Raises ModelError, and leaves
    the history unchanged then.
    """
    item = ContextCompaction(turn.services.sources.new_turn_id())
    turn.emitter.start(item)
    try:
        await _compact(turn, shape, specs)
    except CoreError:
        turn.emitter.cut(item.id)
        raise
    turn.emitter.complete(item)
    turn.emitter.emit(WarningNotice(message=LESS_ACCURATE))


async def _compact(
    turn: TurnContext, shape: RequestTemplate, specs: Callable[[], Sequence[ToolSpec]]
) -> None:
    conversation, state, outbox = turn.services.conversation, turn.services.state, turn.services.outbox
    before = list(state.history.items)
    text = await _summary(turn, shape, specs)
    summary = within_tokens(text, shape.bounds.summary)
    # Items that were recorded while the model wrote, such as the output of a user's command. The summary has neither
    # these nor the mode and the client's own instructions.
    lasting = [*lasting_prompt(turn.settings.system_prompt), *lasting_mode(turn.settings)]
    meanwhile = [*lasting, *state.history.items[len(before) :]]
    opening = opening_items(conversation, turn.settings, shape.bounds)
    words, kept_tokens = collect_user_messages(before), shape.bounds.kept_words
    rebuilt = build_compacted_history(opening, words, summary, kept_tokens=kept_tokens)
    # The model does not need snapshots, but an undo does.
    rebuilt += [item for item in before if isinstance(item, GhostSnapshot)]
    rebuilt += meanwhile
    state.history.replace(rebuilt)
    renew_head(turn, shape)
    state.told_mode = told_mode(meanwhile)
    state.tokens.estimate(estimate_history(rebuilt, shape.instructions), shape.context_window)
    turn.emitter.emit(TokenUsageUpdated(info=state.tokens.info, rate_limits=state.tokens.rate_limits))
    outbox.record(CompactedItem(message=summary))
    outbox.record_items(meanwhile)


async def _summary(turn: TurnContext, shape: RequestTemplate, specs: Callable[[], Sequence[ToolSpec]]) -> str:
    """Return the model's summary; empty if the model wrote none, or if no part of the history fits into a request."""
    services = turn.services
    small = shape.bounds.size is PromptSize.TINY
    own = services.conversation.config.instructions.compact_prompt
    prompt = user_text(own or instruction_text("compact_small" if small else "compact"))
    scratch = ConversationHistory([*services.state.history.for_prompt(), prompt])
    tools = await _offered(turn, shape, specs)
    budget = RequestBudget(services.state, shape, lambda: tools, guesses=services.model)
    while len(scratch) > 1 and not budget.fits_summary(scratch):
        scratch.replace(without_oldest(scratch.items))
    if len(scratch) <= 1 and len(services.state.history):
        return ""
    call = model_call(turn, shape, Transcript(scratch, None), RefusedCalls(NO_CALLS) if tools else None)

    def explain(error: ModelError) -> ModelError:
        return budget.explain_error(error, budget.estimate_of(scratch))

    asked = 0
    while True:
        size = len(scratch)
        try:
            reply = await call.request(
                lambda: shape.prompt(scratch.for_prompt(), tools, None), keeps_messages=True, explain=explain
            )
        except ContextWindowExceeded:
            if len(scratch) <= 1:
                raise
            # The oldest item is dropped first: the summary needs it least.
            scratch.replace(without_oldest(scratch.items))
            continue
        except ModelError as error:
            # A summary that the output limit has cut is better than a thread that no compaction makes smaller.
            cut = last_assistant_text(scratch.items[size:])
            if error.error_class is not ErrorClass.OUTPUT_LIMIT or not cut:
                raise
            return cut
        asked += 1
        items = reply.items(services.sources.clock())
        if not reply.calls or asked == MOST_ASKED:
            return last_assistant_text(items) or ""
        scratch.record([*items, prompt])


async def _offered(
    turn: TurnContext, shape: RequestTemplate, specs: Callable[[], Sequence[ToolSpec]]
) -> Sequence[ToolSpec]:
    """Return the tools of the request for a summary. They are those of all requests, for two reasons: the start of the
    request is in the provider's cache then, and some providers refuse calls in a history without tools. The
    conversation API sends what codex 0.58 sends over Responses.
    """
    if (
        not turn.services.outbox.identity
        and turn.services.model.client().provider.wire_api is WireApi.RESPONSES
    ):
        return ()
    await turn.services.mcp.ready()
    return specs()


class CompactTask(SessionTask):
    """A compaction that the user requested."""

    kind = TurnKind.COMPACT

    async def run(self) -> str | None:
        turn, shape = self.turn, shape_of(self.turn)
        turn.emitter.turn_started(self.kind, shape.context_window)
        stored = turn.services.conversation.rollout_path is not None
        goals = turn.services.outbox.identity and stored
        work = partial(compact, turn, shape, lambda: offered_tools(turn, shape, goals=goals).specs)
        await compact_by_hand(turn, partial(tool_turn_of, turn, shape), work)
        return None
