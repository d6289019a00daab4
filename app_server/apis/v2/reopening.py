"""With which settings a stored thread goes on. Pure. Fast to import."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from app_server.core.config.types import RequestOverrides
from protocol.policy import (
    MAX_EFFORT_LENGTH,
    AskForApproval,
    QuestionKinds,
    SandboxPolicy,
    TurnMode,
    WorkspaceWrite,
)

ASKS = "approval_policy"
"""The setting, and the beginning of its parts."""


class LastSettings(Protocol):
    """Those of a stored turn, as `TurnContextItem` has them."""

    @property
    def cwd(self) -> str: ...
    @property
    def approval_policy(self) -> AskForApproval: ...
    @property
    def granular(self) -> QuestionKinds | None: ...
    @property
    def sandbox_policy(self) -> SandboxPolicy: ...
    @property
    def permission_profile(self) -> str | None: ...
    @property
    def model(self) -> str: ...
    @property
    def chosen_effort(self) -> str | None: ...
    @property
    def mode(self) -> TurnMode | None: ...
    @property
    def mode_instructions(self) -> str | None: ...


def with_last_settings(
    given: RequestOverrides, last: LastSettings | None, *, rights: bool = True
) -> RequestOverrides:
    """What the request leaves open is as it was in the thread's last turn; None: there was none. Without `rights` what
    the thread may do is as the user has configured it.
    """
    if last is None:
        return given
    sandbox, profile = given.sandbox, given.permission_profile
    settings = dict(given.settings)
    if rights and sandbox is None and "sandbox_mode" not in settings:
        sandbox, profile = last.sandbox_policy.mode, last.permission_profile
        settings |= _workspace_settings(last.sandbox_policy)
    if given.model is None and 0 < len(last.chosen_effort or "") <= MAX_EFFORT_LENGTH:
        settings.setdefault("model_reasoning_effort", last.chosen_effort)
    asks = given.approval_policy is not None or any(key.startswith(ASKS) for key in settings)
    asks_as_before = rights and not asks
    return replace(
        given,
        settings=settings,
        sandbox=sandbox,
        permission_profile=profile,
        cwd=given.cwd or (last.cwd if last.cwd.startswith("/") else None),
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
