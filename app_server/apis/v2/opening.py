"""With which settings a thread is opened: what a request names, what a stored thread had, and what is then in force."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from app_server.apis.services import ConfigSource
from app_server.apis.v2 import spelling
from app_server.apis.v2.permissions import active_profile, profile_mode
from app_server.apis.v2.reopening import with_last_settings
from app_server.core.config.types import Config, RequestOverrides
from app_server.core.errors import BeyondClientRights
from app_server.core.real_path import real_path
from app_server.core.rollout.last_settings import last_turn_context
from app_server.core.rollout.rollout_names import ARCHIVED, SESSIONS
from app_server.core.turn.settings import Settings
from protocol.base import Json
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
        workspace_roots=params.runtime_workspace_roots,
        base_instructions=params.base_instructions,
        developer_instructions=params.developer_instructions,
    )


def reopened(source: ConfigSource, path: Path, given: RequestOverrides) -> Config:
    """What the request leaves open is as it was in the thread's last turn. Rights are not, where they are more than the
    user leaves to clients; and neither they nor the folder are, where the file is none of the server's own. Reads the
    disk. Raises ConfigError.
    """
    last, real = last_turn_context(path), Path(real_path(path))
    if not any(real.is_relative_to(real_path(source.home / folder)) for folder in (SESSIONS, ARCHIVED)):
        here = replace(given, cwd=given.cwd or str(source.cwd))
        return source.load(with_last_settings(here, last, rights=False))
    try:
        return source.load(with_last_settings(given, last))
    except BeyondClientRights:
        return source.load(with_last_settings(given, last, rights=False))


def in_force(settings: Settings, provider_id: str, instruction_sources: Sequence[str]) -> dict[str, Json]:
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
        "runtime_workspace_roots": (settings.cwd, *settings.workspace_roots),
    }
