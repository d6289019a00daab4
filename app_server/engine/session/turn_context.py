"""Parts of a turn that tasks pass to the turn loop and to tools: the shape of a turn's requests (row of the catalogue,
instructions, tools, limits), the call of the model, and the turn in the form that tools use.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from operator import is_
from typing import TYPE_CHECKING, Final

from app_server.engine.config.config_values import Config, WireApi
from app_server.engine.config.model_rows import ModelRow
from app_server.engine.context.instructions import instruction_text
from app_server.engine.context.permission_text import stored_entries, stored_profile
from app_server.engine.context.sizes import PromptSize, WindowBounds
from app_server.engine.model.model_facts import ModelFacts, sent_tier
from app_server.engine.model.prompt import RequestSettings
from app_server.engine.session.head import ConversationHead, RequestTemplate, ServerTraits, ToolChoice
from app_server.engine.session.model_notices import unknown_notice
from app_server.engine.session.session_services import SessionServices, TurnContext
from app_server.engine.session.system_prompt import overriding_text
from app_server.engine.session.windows import bounds_for, bounds_of_codex, known_window
from app_server.engine.tools.registry import ToolOffer, ToolSet, build_tools
from app_server.engine.tools.runtime import RefusedCalls, ToolRuntime
from app_server.engine.tools.tool_base import ToolContext, TurnDiffTracker
from app_server.engine.turn.model_call import ModelCall
from app_server.engine.turn.outbox import Transcript
from app_server.engine.turn.stream_assembler import ReplyAssembler
from app_server_protocol.engine.thread_settings import ThreadSettings
from app_server_protocol.policy import TurnMode
from app_server_protocol.rollout import TurnContextItem
from app_server_protocol.values import replace

if TYPE_CHECKING:
    from app_server.engine.mcp.tool_catalog import McpTool

USABLE_PERCENT = 95
"""Usable part of a context window, in percent; the rest is room for the answer. codex 0.58 uses the same number."""

LIVE_CHAT = "chat_deltas"
"""Name of a feature. If it is on, the conversation API, too, shows the text of a Chat Completions answer in deltas and
counts its tokens. If it is off, clients see what codex 0.58 shows.
"""


def shape_of(turn: TurnContext, *, sends_chosen_effort: bool = False) -> RequestTemplate:
    """Return the parts that all requests of a turn have in common. Later turns have the same until the settings, the
    facts about the models or the head of the conversation change.
    """
    state, facts = turn.services.state, turn.services.model.facts()
    followed = turn.services.outbox.identity  # a client follows the conversation by turns and items
    made_of = turn.settings, facts, followed, sends_chosen_effort
    known, model = state.template, turn.settings.model
    is_current = known is not None and all(map(is_, known.made_of, made_of))
    if known is None or not is_current or state.heads.get(model) is not known.head:
        known = state.template = _new_template(turn, made_of)
    return known


def _new_template(
    turn: TurnContext, made_of: tuple[ThreadSettings, ModelFacts, bool, bool]
) -> RequestTemplate:
    config, state = turn.services.conversation.config, turn.services.state
    settings, facts, followed, sends_chosen_effort = made_of
    row = facts.row(settings.model, plain=not followed)
    head = state.heads.get(settings.model)
    bounds = _bounds(turn, facts, row, None if head is None else head.size)
    given = overriding_text(settings.system_prompt)
    if head is None or head.given != given:
        instructions = given or config.instructions.base or base_instructions(row, bounds.size)
        tools = () if head is None else head.tools
        head = state.heads[settings.model] = ConversationHead(bounds.size, instructions, tools, given)
    shows_window = followed or known_window(config, row) is not None
    return RequestTemplate(
        model=row,
        head=head,
        instructions=head.instructions,
        context_window=bounds.window * USABLE_PERCENT // 100 if shows_window else None,
        compact_limit=(
            config.model.auto_compact_token_limit or row.auto_compact_token_limit or bounds.compact_at
        ),
        bounds=bounds,
        parallel_tool_calls=row.parallel_tool_calls,
        settings=RequestSettings(
            model=settings.model,
            row=row,
            effort=_effort(config, settings),
            summary=settings.summary or row.usual_summary,
            verbosity=config.model.verbosity,
            service_tier=sent_tier(settings.service_tier, config.provider, row),
            supports_reasoning_summaries=config.model.supports_reasoning_summaries,
            sends_chosen_effort=sends_chosen_effort,
            wants_answer=followed or config.provider.wire_api is not WireApi.RESPONSES,
            max_output_tokens=config.model.max_output_tokens,
            live_chat=followed or config.model.show_raw_reasoning or config.features.enabled(LIVE_CHAT),
            conversation_id=turn.services.conversation.id,
        ),
        context_line=context_line(turn.services, settings),
        unknown_notice=unknown_notice(config, row, bounds.window, settings.model),
        server=ServerTraits(facts.cuts_silently, facts.is_own_server),
        made_of=made_of,
    )


def _bounds(turn: TurnContext, facts: ModelFacts, row: ModelRow, size: PromptSize | None) -> WindowBounds:
    """Return the bounds of the turn's context window. Over Responses, the conversation API has those of codex 0.58,
    unless the user chose a size.
    """
    config = turn.services.conversation.config
    as_codex = not turn.services.outbox.identity and config.provider.wire_api is WireApi.RESPONSES
    if as_codex and config.model.prompt in (None, "auto"):
        return bounds_of_codex(config, facts, row)
    return bounds_for(config, facts, row, size)


def renew_head(turn: TurnContext, shape: RequestTemplate) -> None:
    """Choose instructions and tools again after a compaction. If the size of the prompt has changed, the turn keeps its
    own, and the next turn begins with the new ones.
    """
    state = turn.services.state
    state.heads.clear()
    new = shape_of(turn).head
    if (new.size, new.instructions) == (shape.head.size, shape.head.instructions):
        shape.head.tools = ()
        state.heads[shape.settings.model] = shape.head


def _effort(config: Config, settings: ThreadSettings) -> str | None:
    """Return the reasoning effort of a turn. The user may have set another one for plan mode."""
    planning = settings.mode.kind is TurnMode.PLAN
    return config.model.plan_effort if planning and config.model.plan_effort else settings.effort


def base_instructions(row: ModelRow, size: PromptSize = PromptSize.FULL) -> str:
    """Return the server's own prompt. For models that were trained on patches, it does not explain the format."""
    base, patches = _TEXTS[size]
    text = instruction_text(base)
    return text if row.knows_apply_patch or patches is None else f"{text}\n{instruction_text(patches)}"


_TEXTS: Final[Mapping[PromptSize, tuple[str, str | None]]] = {
    PromptSize.FULL: ("base", "apply_patch"),
    PromptSize.SMALL: ("base_small", "apply_patch_small"),
    PromptSize.TINY: ("base_tiny", None),
}
"""Names of the texts by size: the prompt, and the format of patches if that is a separate text."""


NO_MCP_TOOLS: Final[Mapping[str, McpTool]] = {}


def offered_tools(turn: TurnContext, shape: RequestTemplate, *, goals: bool) -> ToolSet:
    """Choose the tools of a turn. `goals`: the turn is of an API that supports goals, in a stored conversation. Later
    turns have the same until the template, the tools of MCP servers or the goal change.
    """
    state, mcp, features = turn.services.state, turn.services.mcp, turn.services.conversation.config.features
    goals = goals and (state.goals.goal is not None or "goals" in features.names)
    chosen_by, known = (shape, mcp.tools() if mcp.servers else NO_MCP_TOOLS, goals), state.tools
    is_current = known is not None and all(map(is_, known.chosen_by, chosen_by))
    if known is None or not is_current or shape.head.tools is not known.tools.offered:
        known = state.tools = ToolChoice(chosen_by, _chosen_tools(turn, shape, goals=goals))
    return known.tools


def _chosen_tools(turn: TurnContext, shape: RequestTemplate, *, goals: bool) -> ToolSet:
    services, bounds = turn.services, shape.bounds
    followed = services.outbox.identity
    offer = ToolOffer(
        size=bounds.size,
        goals=goals,
        resources=services.mcp.configured or (not followed and bounds.size is PromptSize.FULL),
        mcp_tokens=bounds.mcp_tools,
        asks=followed and bool(shape.model.checks_head),
        before=shape.head.tools,
    )
    return build_tools(
        services.conversation.config,
        shape.model,
        services.mcp,
        offer=offer,
        client_tools=services.conversation.client_tools,
        mode=turn.settings.mode.kind,
    )


def context_line(services: SessionServices, settings: ThreadSettings) -> TurnContextItem:
    """Return the line of the rollout with settings, without the id of a turn."""
    follows_turns = services.outbox.stores_turns
    return TurnContextItem.of(  # the lines of the conversation API are those of codex 0.58
        settings,
        turn_id=None,
        active_permission_profile=stored_profile(settings),
        permission_profile=stored_entries(settings.sandbox_policy, settings.cwd) if follows_turns else None,
        service_tier=settings.service_tier if follows_turns else None,
    )


def model_call(
    turn: TurnContext,
    shape: RequestTemplate,
    transcript: Transcript,
    tools: ToolRuntime | RefusedCalls | None = None,
    *,
    show_messages: bool = True,
    line: TurnContextItem | None = None,
) -> ModelCall:
    """Create a call of the model. If it runs tools, clients see its replies; `show_messages` False hides their
    messages. `line`: context line of the requests; None if it is that of the template.
    """
    services = turn.services
    turn_id = turn.emitter.turn_id if services.outbox.stores_turns else None
    return ModelCall(
        emitter=turn.emitter,
        model=services.model.client(),
        settings=shape.settings,
        outbox=services.outbox,
        transcript=transcript,
        tokens=services.state.tokens,
        context_window=shape.context_window,
        context_line=replace(line or shape.context_line, turn_id=turn_id),
        assembler=partial(
            ReplyAssembler,
            turn.emitter if isinstance(tools, ToolRuntime) else None,
            services.sources.new_id,
            raw_reasoning=services.conversation.config.model.show_raw_reasoning,
            show_messages=show_messages,
            plans=turn.settings.mode.kind is TurnMode.PLAN,
        ),
        tools=tools,
        clock=services.sources.clock,
        telemetry=services.reports.telemetry,
    )


def tool_turn_of(turn: TurnContext, shape: RequestTemplate, *, relative_diff: bool = False) -> ToolContext:
    """Collect the services of this turn for its tools. `relative_diff`: the diff names files relative to the turn's
    working directory.
    """
    services = turn.services
    base = turn.settings.cwd if relative_diff else None
    return ToolContext(
        id=turn.emitter.operation_id,
        settings=turn.settings,
        config=services.conversation.config,
        items=turn.emitter,
        commands=services.commands,
        approvals=services.approvals,
        mcp=services.mcp,
        diffs=TurnDiffTracker(str(services.conversation.config.home), base=base),
        sources=services.sources,
        output_limit=shape.bounds.output,
        telemetry=services.reports.telemetry,
    )
