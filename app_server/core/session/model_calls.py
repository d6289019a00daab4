"""What tasks hand to the turn loop and to tools: model calls, and the turn as tools see it.

`visible_call` shows clients what the model says, `internal_call` is for the engine.
"""

from __future__ import annotations

from app_server.core.patch.turn_patches import TurnDiffTracker
from app_server.core.session.services import Services, SessionState
from app_server.core.tools.contract import ToolTurn, TurnSettings
from app_server.core.tools.runtime import ToolRuntime
from app_server.core.turn.assemble import ReplyAssembler
from app_server.core.turn.emitter import TurnEmitter
from app_server.core.turn.model_call import ModelCall
from app_server.core.turn.request_shape import RequestShape, context_line, request_shape
from app_server.core.turn.settings import Settings, Turn
from app_server.core.turn.transcript import Transcript
from protocol.policy import TurnMode


def shape_of(services: Services, turn: Turn) -> RequestShape:
    """What the turn's requests have in common."""
    conversation = services.conversation
    followed = services.outbox.identity
    return request_shape(conversation.config, turn.settings, conversation.id, followed=followed)


def visible_call(
    services: Services,
    state: SessionState,
    turn: Turn,
    shape: RequestShape,
    transcript: Transcript,
    tools: ToolRuntime,
    *,
    show_messages: bool = True,
) -> ModelCall:
    """A call whose replies clients see; `show_messages` False hides the assistant's messages."""

    return _model_call(services, state, turn, shape, transcript, tools, turn.emitter, show_messages)


def internal_call(
    services: Services, state: SessionState, turn: Turn, shape: RequestShape, transcript: Transcript
) -> ModelCall:
    """A call without tools whose replies no client sees."""
    return _model_call(services, state, turn, shape, transcript, None, None, False)


def _model_call(
    services: Services,
    state: SessionState,
    turn: Turn,
    shape: RequestShape,
    transcript: Transcript,
    tools: ToolRuntime | None,
    shown_by: TurnEmitter | None,
    show_messages: bool,
) -> ModelCall:
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
        model=services.model,
        settings=shape.settings,
        outbox=services.outbox,
        transcript=transcript,
        tokens=state.tokens,
        context_window=shape.context_window,
        context_line=context_line(turn),
        assembler=assembler,
        tools=tools,
        clock=services.sources.clock,
        telemetry=services.reports.telemetry,
    )


def tool_turn_of(services: Services, state: SessionState, turn: Turn, diffs: TurnDiffTracker) -> ToolTurn:
    """The services of this turn for its tools."""
    return ToolTurn(
        id=turn.operation_id,
        settings=tool_settings(turn.settings),
        config=services.conversation.config,
        items=turn.emitter,
        commands=services.commands,
        approvals=services.approvals,
        mcp=services.mcp,
        diffs=diffs,
        clock=services.sources.clock,
        new_id=services.sources.new_id,
        shown_once=state.shown_once,
        telemetry=services.reports.telemetry,
    )


def tool_settings(settings: Settings) -> TurnSettings:
    return TurnSettings(
        settings.cwd,
        settings.approval_policy,
        settings.sandbox_policy,
        settings.granular,
        settings.mode.kind,
    )
