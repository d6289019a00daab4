"""With which settings a thread is opened: what a request names, what a stored thread had, and what is then in force."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from app_server.apis.v2 import spelling
from app_server.apis.v2.permissions import active_profile, profile_mode
from app_server.core.config.types import RequestOverrides
from app_server.core.rollout.last_settings import last_turn_context
from app_server.core.turn.settings import Settings
from protocol.policy import MAX_EFFORT_LENGTH, SandboxPolicy, WorkspaceWrite
from protocol.v2.policy import ApprovalsReviewer
from protocol.v2.thread_open import ThreadForkParams, ThreadResumeParams, ThreadStartParams


def overrides_of(params: ThreadStartParams | ThreadResumeParams | ThreadForkParams) -> RequestOverrides:
    sandbox = params.sandbox.value if params.sandbox else None
    if params.permissions is not None:
        sandbox = profile_mode(params.permissions, beside="sandbox", given=sandbox).value
    policy, kinds = None, None
    if params.approval_policy is not None:
        policy, kinds = spelling.approval_policy(params.approval_policy)
    return RequestOverrides(
        settings=params.config or {},
        model=params.model,
        model_provider=params.model_provider,
        cwd=params.cwd,
        approval_policy=policy,
        granular=kinds,
        sandbox=sandbox,
        permission_profile=params.permissions,
        base_instructions=params.base_instructions,
        developer_instructions=params.developer_instructions,
    )


ASKS = "approval_policy"
"""The setting, and the beginning of its parts."""


def stored_settings(path: Path, given: RequestOverrides) -> RequestOverrides:
    """What the request leaves open is as it was in the thread's last turn."""
    last = last_turn_context(path)
    if last is None:
        return given
    sandbox, profile = given.sandbox, given.permission_profile
    settings = dict(given.settings)
    if sandbox is None and "sandbox_mode" not in settings:
        sandbox, profile = last.sandbox_policy.mode, last.permission_profile
        settings |= _workspace_settings(last.sandbox_policy)
    if given.model is None and 0 < len(last.chosen_effort or "") <= MAX_EFFORT_LENGTH:
        settings.setdefault("model_reasoning_effort", last.chosen_effort)
    asks_as_before = given.approval_policy is None and not any(key.startswith(ASKS) for key in settings)
    return replace(
        given,
        settings=settings,
        sandbox=sandbox,
        permission_profile=profile,
        cwd=given.cwd or last.cwd,
        approval_policy=last.approval_policy if asks_as_before else given.approval_policy,
        granular=last.granular if asks_as_before else given.granular,
        model=given.model or last.model,
        mode=last.mode or given.mode,
        mode_instructions=last.mode_instructions,
    )


def _workspace_settings(policy: SandboxPolicy) -> dict[str, object]:
    if not isinstance(policy, WorkspaceWrite):
        return {}
    table = "sandbox_workspace_write"
    return {
        f"{table}.writable_roots": list(policy.writable_roots),
        f"{table}.network_access": policy.network_access,
        f"{table}.exclude_tmpdir_env_var": policy.exclude_tmpdir_env_var,
        f"{table}.exclude_slash_tmp": policy.exclude_slash_tmp,
    }


def in_force(settings: Settings, provider_id: str, instruction_sources: Sequence[str]) -> dict[str, object]:
    """The settings that the next turn starts from."""
    return {
        "model": settings.model,
        "model_provider": provider_id,
        "cwd": settings.cwd,
        "approval_policy": spelling.shown_approval_policy(settings.approval_policy, settings.granular),
        "active_permission_profile": active_profile(settings.permission_profile),
        "approvals_reviewer": ApprovalsReviewer.USER,
        "sandbox": spelling.shown_sandbox_policy(settings.sandbox_policy),
        "reasoning_effort": settings.effort,
        "instruction_sources": tuple(instruction_sources),
        "runtime_workspace_roots": (settings.cwd,),
    }
