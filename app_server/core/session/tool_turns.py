"""The turn as tools see it."""

from __future__ import annotations

from app_server.core.patch.changes import TurnDiffTracker
from app_server.core.session.services import Services
from app_server.core.session.state import SessionState
from app_server.core.tools.contract import ToolTurn, TurnSettings
from app_server.core.turn.settings import Settings, Turn


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
