"""Settings of a thread: what a request changes, and what is in force. Pure."""

from __future__ import annotations

from typing import Final, Literal, Protocol

from app_server.apis.v2 import spelling
from app_server.apis.v2.permissions import active_profile, profile_mode, profile_policy
from app_server.core.config.fence import check_permissions
from app_server.core.config.load import require_working_directory
from app_server.core.config.types import Config
from app_server.core.turn.settings import UNSET, ModeSettings, Settings, SettingsChange, Unset, or_unset
from app_server.rpc.errors import invalid_request
from protocol import policy as engine
from protocol.engine.events import SettingsChanged
from protocol.v2.policy import ApprovalsReviewer
from protocol.v2.settings import (
    CollaborationMode,
    CollaborationSettings,
    ModeKind,
    ThreadSettings,
    ThreadSettingsUpdateParams,
)
from protocol.v2.turn import TurnStartParams

_MODES: Final = {
    ModeKind.DEFAULT: engine.TurnMode.DEFAULT,
    ModeKind.PLAN: engine.TurnMode.PLAN,
}
_SHOWN_MODES: Final = {kind: mode for mode, kind in _MODES.items()}


class SettingsInForce(Protocol):
    """What is in force in a thread."""

    @property
    def settings(self) -> Settings: ...

    @property
    def config(self) -> Config: ...


def settings_change(
    params: TurnStartParams | ThreadSettingsUpdateParams, facts: SettingsInForce
) -> SettingsChange:
    """Raises RpcError, and ConfigError for rights that are not given."""
    sandbox, policy, kinds = params.sandbox_policy, None, None
    if params.approval_policy is not None:
        policy, kinds = spelling.approval_policy(params.approval_policy)
    chosen = None if sandbox is None else spelling.sandbox_policy(sandbox)
    if params.permissions is not None:
        mode = profile_mode(params.permissions, beside="sandboxPolicy", given=sandbox)
        chosen = profile_policy(mode, facts.config.permissions.sandbox_policy)
    model, effort = params.model, params.effort
    set_effort: str | Literal[Unset.UNSET] | None = UNSET
    if effort is not None:
        set_effort = _effort(effort, "effort")
    way = params.collaboration_mode
    if way is not None:  # which names these as well, and means them
        model, effort = way.settings.model, way.settings.reasoning_effort
        set_effort = None if effort is None else _effort(effort, "collaborationMode")
    change = SettingsChange(
        cwd=or_unset(params.cwd),
        approval_policy=or_unset(policy),
        granular=kinds,
        sandbox_policy=or_unset(chosen),
        permission_profile=params.permissions,
        workspace_roots=or_unset(
            params.runtime_workspace_roots if isinstance(params, TurnStartParams) else None
        ),
        model=or_unset(model),
        effort=set_effort,
        summary=or_unset(params.summary),
        mode=UNSET if way is None else _mode(way),
    )
    after = facts.settings.changed(change)
    require_working_directory(after.cwd, None if change.workspace_roots is UNSET else change.workspace_roots)
    check_permissions(facts.config.fence, after, after.cwd)
    return change


def _effort(word: str, field: str) -> str:
    """As the client says it: models have efforts of their own."""
    if not 1 <= len(word) <= engine.MAX_EFFORT_LENGTH:
        raise invalid_request(
            f"a reasoning effort must have 1 to {engine.MAX_EFFORT_LENGTH} characters",
            "invalid_params",
            field,
        )
    return word


def _mode(way: CollaborationMode) -> ModeSettings:
    return ModeSettings(_MODES[way.mode], way.settings.developer_instructions or None)


def collaboration_mode(now: Settings) -> CollaborationMode:
    return _shown_mode(now.mode.kind, now.mode.instructions, now.model, now.effort)


def _shown_mode(
    kind: engine.TurnMode, instructions: str | None, model: str, effort: str | None
) -> CollaborationMode:
    settings = CollaborationSettings(
        model=model, reasoning_effort=effort, developer_instructions=instructions
    )
    return CollaborationMode(mode=_SHOWN_MODES[kind], settings=settings)


def shown_settings(now: SettingsChanged) -> ThreadSettings:
    return ThreadSettings(
        cwd=now.cwd,
        approval_policy=spelling.shown_approval_policy(now.approval_policy, now.granular),
        approvals_reviewer=ApprovalsReviewer.USER,
        sandbox_policy=spelling.shown_sandbox_policy(now.sandbox_policy),
        active_permission_profile=active_profile(now.permission_profile),
        model=now.model,
        model_provider=now.model_provider,
        effort=now.effort,
        summary=now.summary,
        collaboration_mode=_shown_mode(now.mode, now.mode_instructions, now.model, now.effort),
    )
