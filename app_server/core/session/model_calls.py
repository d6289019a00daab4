"""What tasks hand to the turn loop and to tools: how a turn asks the model (its row of the catalogue, instructions,
tools, limits), its calls, and the turn as tools see it.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from app_server.core.config.types import Config, WireApi
from app_server.core.context.instructions import instruction_text
from app_server.core.context.permission_text import stored_entries, stored_profile
from app_server.core.model.catalogue import ASSUMED_WINDOW, ModelRow
from app_server.core.model.model_facts import sent_tier
from app_server.core.model.prompt import Prompt, RequestSettings, ToolSpec
from app_server.core.session.services import Turn
from app_server.core.tools.contract import ToolTurn, TurnDiffTracker
from app_server.core.tools.runtime import ToolRuntime
from app_server.core.turn.assemble import ReplyAssembler
from app_server.core.turn.model_call import ModelCall
from app_server.core.turn.outbox import Transcript
from app_server_protocol.engine.settings import Settings
from app_server_protocol.policy import TurnMode, known_effort, without_profile
from app_server_protocol.responses import ResponseItem
from app_server_protocol.rollout import TurnContextItem

USABLE_PERCENT = 95
"""Of a context window; the rest is room for the answer. codex 0.58 counts so, too."""

FULL_PERCENT = 90
"""Of a context window: where so much is used, the history is compacted, unless the user says another limit."""

LIVE_CHAT = "chat_deltas"
"""Feature: over the conversation API, too, the text of a Chat Completions answer comes piece by piece, and its tokens
are counted. Off, clients see what codex 0.58 shows."""


class RequestShape(Struct, frozen=True):
    """Parts that all requests of one turn have in common."""

    model: ModelRow
    instructions: str
    context_window: int | None
    """As it is shown; None where an API does not show what is assumed."""
    compact_limit: int
    settings: RequestSettings

    def prompt(
        self, items: Sequence[ResponseItem], tools: Sequence[ToolSpec], output_schema: object
    ) -> Prompt:
        return Prompt(
            instructions=self.instructions,
            input=items,
            tools=tools,
            parallel_tool_calls=self.model.parallel_tool_calls,
            output_schema=output_schema,
        )


def shape_of(turn: Turn) -> RequestShape:
    """Work out what all requests of a turn have in common."""
    config, settings = turn.services.conversation.config, turn.settings
    followed = turn.services.outbox.identity  # a client follows the conversation by turns and items
    facts = turn.services.model.facts()
    row = facts.row(settings.model, plain=not followed)
    known = _window(config, row)
    window = known or facts.assumed_window or ASSUMED_WINDOW
    shows_window = followed or known is not None
    return RequestShape(
        model=row,
        instructions=_instructions(config, settings, row),
        context_window=window * USABLE_PERCENT // 100 if shows_window else None,
        compact_limit=(
            config.model.auto_compact_token_limit
            or row.auto_compact_token_limit
            or window * FULL_PERCENT // 100
        ),
        settings=RequestSettings(
            model=settings.model,
            row=row,
            effort=_effort(config, settings),
            summary=settings.summary,
            verbosity=config.model.verbosity,
            service_tier=sent_tier(config, row),
            supports_reasoning_summaries=config.model.supports_reasoning_summaries,
            wants_answer=followed or config.provider.wire_api is not WireApi.RESPONSES,
            max_output_tokens=config.model.max_output_tokens,
            live_chat=followed or config.model.show_raw_reasoning or config.features.enabled(LIVE_CHAT),
            conversation_id=turn.services.conversation.id,
        ),
    )


def _effort(config: Config, settings: Settings) -> str | None:
    """Return the reasoning effort of a turn, which the user may have set for plan mode alone."""
    planning = settings.mode.kind is TurnMode.PLAN
    return config.model.plan_effort if planning and config.model.plan_effort else settings.effort


def _window(config: Config, row: ModelRow) -> int | None:
    """Return the context window in tokens; None if nobody says it. The user's does not exceed what the model has."""
    own = config.model.context_window
    most = row.max_context_window
    return row.context_window if own is None else own if most is None else min(own, most)


def _instructions(config: Config, settings: Settings, row: ModelRow) -> str:
    """Join the instructions; those of the mode come last, in each request: they outlast a compaction, not the mode."""
    base = config.instructions.base or base_instructions(row)
    mode = settings.mode.instructions
    if mode is None and settings.mode.kind is TurnMode.PLAN:
        mode = instruction_text("plan")
    return base if not mode else f"{base}\n\n{mode}"


def base_instructions(row: ModelRow) -> str:
    """Return our prompt; models that know patches from training are not taught the format."""
    base = instruction_text("base")
    return base if row.knows_apply_patch else f"{base}\n{instruction_text('apply_patch')}"


def context_line(turn: Turn) -> TurnContextItem:
    settings = turn.settings
    effort = known_effort(settings.effort)
    outbox = turn.services.outbox
    follows_turns = (
        outbox.identity or outbox.is_paginated
    )  # lines of the conversation API are those of codex 0.58
    return TurnContextItem(
        turn_id=turn.emitter.turn_id if follows_turns else None,
        cwd=settings.cwd,
        approval_policy=settings.approval_policy,
        granular=settings.granular,
        active_permission_profile=stored_profile(settings),
        permission_profile=stored_entries(settings.sandbox_policy, settings.cwd) if follows_turns else None,
        sandbox_policy=without_profile(settings.sandbox_policy, settings.cwd),
        model=settings.model,
        effort=effort,
        further_effort=None if effort == settings.effort else settings.effort,
        summary=settings.summary,
        mode=None if settings.mode.kind is TurnMode.DEFAULT else settings.mode.kind,
        mode_instructions=settings.mode.instructions,
    )


def model_call(
    turn: Turn,
    shape: RequestShape,
    transcript: Transcript,
    tools: ToolRuntime | None = None,
    *,
    show_messages: bool = True,
) -> ModelCall:
    """Make a call of the model. Clients see replies of one with tools; `show_messages` False hides its messages."""
    services, shown_by = turn.services, None if tools is None else turn.emitter

    def assembler() -> ReplyAssembler:
        return ReplyAssembler(
            shown_by,
            services.sources.new_id,
            raw_reasoning=services.conversation.config.model.show_raw_reasoning,
            show_messages=show_messages,
            plans=turn.settings.mode.kind is TurnMode.PLAN,
        )

    return ModelCall(
        emitter=turn.emitter,
        model=services.model.client(),
        settings=shape.settings,
        outbox=services.outbox,
        transcript=transcript,
        tokens=services.state.tokens,
        context_window=shape.context_window,
        context_line=context_line(turn),
        assembler=assembler,
        tools=tools,
        clock=services.sources.clock,
        telemetry=services.reports.telemetry,
    )


def tool_turn_of(turn: Turn, *, relative_diff: bool = False) -> ToolTurn:
    """Collect the services of this turn for its tools. `relative_diff`: its diff names files relative to its folder."""
    services = turn.services
    base = turn.settings.cwd if relative_diff else None
    return ToolTurn(
        id=turn.operation_id,
        settings=turn.settings,
        config=services.conversation.config,
        items=turn.emitter,
        commands=services.commands,
        approvals=services.approvals,
        mcp=services.mcp,
        diffs=TurnDiffTracker(str(services.conversation.config.home), base=base),
        sources=services.sources,
        telemetry=services.reports.telemetry,
    )
