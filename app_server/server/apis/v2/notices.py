"""Notifications that belong to no item: usage, limits, goals, the diff and the plan of a turn, warnings, raw entries of
the history.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from app_server.server.apis.v2.account_limits import AccountLimits
from app_server.server.apis.v2.item_lines import NotificationLines
from app_server.server.apis.v2.thread_settings import shown_settings
from app_server_protocol.engine import events as engine
from app_server_protocol.engine.events import (
    GoalCleared,
    GoalUpdated,
    McpServerStateChanged,
    ModelRerouted,
    SettingsChanged,
)
from app_server_protocol.engine.hook_runs import HookCompleted, HookRun, HookStarted
from app_server_protocol.engine.notices import (
    CustomPromptsListed,
    DeprecationNotice,
    ErrorNotice,
    HistoryEntryFound,
    HistoryItemRecorded,
    McpToolsListed,
    Notice,
    PlanUpdated,
    ProgressNotice,
    SessionClosed,
    TokenUsageUpdated,
    TurnDiffUpdated,
    UndoCompleted,
    UndoStarted,
    WarningNotice,
)
from app_server_protocol.engine.token_usage import RateLimitSnapshot, RateLimitWindow, TokenUsageInfo
from app_server_protocol.outgoing import struct_from
from app_server_protocol.v2 import hook_runs, models, server
from app_server_protocol.v2 import thread as wire
from app_server_protocol.v2.settings import THREAD_SETTINGS_UPDATED
from app_server_protocol.v2.turn import TURN_DIFF_UPDATED, TURN_PLAN_UPDATED, TurnPlanStep, TurnPlanStepStatus

if TYPE_CHECKING:
    from app_server_protocol.v2.hook_listing import HookHandlerType, HookSource


def shown_goal(thread_id: str, goal: engine.Goal) -> wire.ThreadGoal:
    return struct_from(
        wire.ThreadGoal,
        goal,
        thread_id=thread_id,
        status=wire.ThreadGoalStatus[goal.status.name],
        time_used_seconds=int(goal.seconds_used),
    )


def goal_status(shown: wire.ThreadGoalStatus | None) -> engine.GoalStatus | None:
    return None if shown is None else engine.GoalStatus[shown.name]


def token_usage(info: TokenUsageInfo) -> wire.ThreadTokenUsage:
    return wire.ThreadTokenUsage(
        total=struct_from(wire.TokenUsageBreakdown, info.total_token_usage, cache_write_input_tokens=0),
        last=struct_from(wire.TokenUsageBreakdown, info.last_token_usage, cache_write_input_tokens=0),
        model_context_window=info.model_context_window,
    )


def rate_limits(snapshot: RateLimitSnapshot) -> server.RateLimitSnapshot:
    return server.RateLimitSnapshot(primary=_window(snapshot.primary), secondary=_window(snapshot.secondary))


def _window(window: RateLimitWindow | None) -> server.RateLimitWindow | None:
    if window is None or not math.isfinite(window.used_percent):
        return None
    return server.RateLimitWindow(
        used_percent=round(window.used_percent),
        window_duration_mins=window.window_minutes,
        resets_at=window.resets_at,
    )


_HANDLER_TYPES: Final[Mapping[str, HookHandlerType]] = {
    "mcpTool": "mcpTool",
    "prompt": "prompt",
    "agent": "agent",
}
_SOURCES: Final[Mapping[str, HookSource]] = {"user": "user", "project": "project"}


def shown_run(run: HookRun) -> hook_runs.HookRunSummary:
    return hook_runs.HookRunSummary(
        id=run.id,
        event_name=run.event.camel,
        # This API has no words for a callback of a client: it is shown as a command of the session.
        handler_type=_HANDLER_TYPES.get(run.handler_type.value, "command"),
        execution_mode=hook_runs.HookExecutionMode.ASYNC
        if run.is_async
        else hook_runs.HookExecutionMode.SYNC,
        scope=hook_runs.HookScope.THREAD if run.of_thread else hook_runs.HookScope.TURN,
        source_path=run.source_path,
        source=_SOURCES.get(run.source.value, "sessionFlags"),
        display_order=run.display_order,
        status=hook_runs.HookRunStatus[run.status.name],
        status_message=run.status_message,
        started_at=run.started_at,
        completed_at=run.completed_at,
        duration_ms=run.duration_ms,
        entries=tuple(
            hook_runs.HookOutputEntry(kind=hook_runs.HookOutputEntryKind[each.kind.name], text=each.text)
            for each in run.entries
        ),
    )


RAW_ITEM_COMPLETED = "rawResponseItem/completed"
"""Method of a notification that is sent only to clients that asked for raw items."""


class ThreadNotices:
    """Writes only notifications with new content: the engine repeats the diff, the usage and the limits."""

    def __init__(
        self,
        thread_id: str,
        lines: NotificationLines,
        limits: AccountLimits,
        usage: TokenUsageInfo | None = None,
    ) -> None:
        """Begin without a turn. `limits` are shared by all threads. `usage` is that of the thread so far, so it is not
        sent again with its next turn.
        """
        self._thread_id, self._lines, self._limits = thread_id, lines, limits
        self._diff: tuple[str | None, str] = None, ""
        """The last diff, after the id of its turn: a new turn has changed no files yet."""
        self._usage = usage

    def take(self, turn_id: str | None, event: Notice, *, raw: bool) -> None:
        match event:
            case TokenUsageUpdated():
                self._tokens(turn_id, event)
            case TurnDiffUpdated():
                self._turn_diff(turn_id, event)
            case PlanUpdated():
                self._plan(turn_id, event)
            case HistoryItemRecorded():
                if raw and turn_id is not None:
                    place = (
                        f'{{"threadId":{json.dumps(self._thread_id)},"turnId":{json.dumps(turn_id)},"item":'
                    )
                    self._lines.add_raw(RAW_ITEM_COMPLETED, place.encode() + event.item.to_json() + b"}")
            case WarningNotice() | ErrorNotice():
                # The error of a turn that fails is sent with the end of the turn; this error ends no turn.
                self._warn(event.message)
            case DeprecationNotice():
                self._lines.add(server.DEPRECATION_NOTICE, summary=event.summary, details=event.details)
            case UndoCompleted():
                if not event.success and event.message is not None:
                    self._warn(event.message)
            case (
                ProgressNotice()
                | SessionClosed()
                | UndoStarted()
                | HistoryEntryFound()
                | CustomPromptsListed()
                | McpToolsListed()
            ):
                pass  # progress that clients do not need, and answers to operations that this API does not have

    def hook(self, turn_id: str | None, event: HookStarted | HookCompleted) -> None:
        thread, shown = self._thread_id, shown_run(event.run)
        if isinstance(event, HookStarted):
            self._lines.add(hook_runs.HOOK_STARTED, thread_id=thread, turn_id=turn_id, run=shown)
        else:
            self._lines.add(hook_runs.HOOK_COMPLETED, thread_id=thread, turn_id=turn_id, run=shown)

    def goal(self, turn_id: str | None, event: GoalUpdated | GoalCleared) -> None:
        if isinstance(event, GoalCleared):
            self._lines.add(wire.THREAD_GOAL_CLEARED, thread_id=self._thread_id)
        else:
            shown = shown_goal(self._thread_id, event.goal)
            self._lines.add(wire.THREAD_GOAL_UPDATED, thread_id=self._thread_id, turn_id=turn_id, goal=shown)

    def settings(self, event: SettingsChanged) -> None:
        shown = shown_settings(event.settings, event.model_provider)
        self._lines.add(THREAD_SETTINGS_UPDATED, thread_id=self._thread_id, thread_settings=shown)

    def rerouted(self, turn_id: str | None, event: ModelRerouted) -> None:
        self._lines.add(
            models.MODEL_REROUTED,
            thread_id=self._thread_id,
            turn_id=turn_id or "",
            from_model=event.from_model,
            to_model=event.to_model,
            reason="highRiskCyberActivity",
        )

    def server_state(self, event: McpServerStateChanged) -> None:
        reason = (
            wire.McpServerStartupFailureReason.REAUTHENTICATION_REQUIRED if event.login_required else None
        )
        self._lines.add(
            wire.MCP_SERVER_STARTUP_STATUS_UPDATED,
            thread_id=self._thread_id,
            name=event.server,
            status=wire.McpServerStartupState(event.state.value),
            error=event.error,
            failure_reason=reason,
            protocol_version=event.revision,
        )

    def _warn(self, message: str) -> None:
        warning = server.WARNING.make(thread_id=self._thread_id, message=message)
        self._lines.add_raw(server.WARNING.method, warning.to_json(), news=message)

    def _tokens(self, turn_id: str | None, event: TokenUsageUpdated) -> None:
        if event.info is not None and turn_id is not None and event.info != self._usage:
            self._usage = event.info
            self._lines.add_state(
                wire.THREAD_TOKEN_USAGE_UPDATED,
                None,
                thread_id=self._thread_id,
                turn_id=turn_id,
                token_usage=token_usage(event.info),
            )
        if event.rate_limits is None:
            return
        row, limits = server.ACCOUNT_RATE_LIMITS_UPDATED, rate_limits(event.rate_limits)
        self._limits.latest = limits
        self._lines.add_raw(row.method, row.make(rate_limits=limits).to_json(), news=limits, state="")

    def _turn_diff(self, turn_id: str | None, event: TurnDiffUpdated) -> None:
        before = self._diff[1] if self._diff[0] == turn_id else ""
        if turn_id is not None and event.unified_diff != before:
            self._diff = turn_id, event.unified_diff
            self._lines.add_state(
                TURN_DIFF_UPDATED,
                turn_id,
                thread_id=self._thread_id,
                turn_id=turn_id,
                diff=event.unified_diff,
            )

    def _plan(self, turn_id: str | None, event: PlanUpdated) -> None:
        if turn_id is None:
            return
        steps = tuple(
            TurnPlanStep(step=each.step, status=TurnPlanStepStatus[each.status.name]) for each in event.plan
        )
        self._lines.add_state(
            TURN_PLAN_UPDATED,
            turn_id,
            thread_id=self._thread_id,
            turn_id=turn_id,
            explanation=event.explanation,
            plan=steps,
        )
