"""With what a thread is opened: settings that a request names or a stored thread had, tools that the client
brings, and which settings are then in force.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from app_server.apis.v2.settings import (
    active_profile,
    approval_policy,
    profile_mode,
    shown_approval_policy,
    shown_sandbox_policy,
)
from app_server.core.config.settings import UserSettings
from app_server.core.config.types import Config, RequestOverrides
from app_server.core.errors import BeyondClientRights
from app_server.core.rollout.stored_conversations import StoredConversations
from app_server.rpc.errors import invalid_field
from protocol.engine.questions import ClientTool
from protocol.policy import MAX_EFFORT_LENGTH, SandboxPolicy, WorkspaceWrite
from protocol.rollout import TurnContextItem
from protocol.structs import Json, alike, replace
from protocol.v2 import thread_open as wire
from protocol.v2.settings import ApprovalsReviewer

if TYPE_CHECKING:
    from app_server.core.session.handle import SessionFacts

ASKS = "approval_policy"
"""The setting, and the beginning of its parts."""


def with_last_settings(
    given: RequestOverrides, last: TurnContextItem | None, *, rights: bool = True
) -> RequestOverrides:
    """Fill what the request leaves open as it was in the thread's last turn; None: there was none. Without `rights`
    what the thread may do is as the user has configured it.
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


def overrides_of(params: wire.ThreadOptions) -> RequestOverrides:
    sandbox = params.sandbox.value if params.sandbox else None
    if params.permissions is not None:
        sandbox = profile_mode(params.permissions, beside="sandbox", given=sandbox).value
    policy, kinds = approval_policy(params.approval_policy)
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


async def reopened(
    source: UserSettings, stored: StoredConversations, path: Path, given: RequestOverrides
) -> Config:
    """Load the settings of a stored thread; what the request leaves open is as it was in its last turn. Rights are not,
    where they are more than the user leaves to clients; and neither they nor the folder are, where the file is none of
    the server's own. Raises ConfigError.
    """
    last = await stored.last_settings(path)
    if not await stored.has(path):
        here = replace(given, cwd=given.cwd or str(source.cwd))
        return source.load(with_last_settings(here, last, rights=False))
    try:
        return source.load(with_last_settings(given, last))
    except BeyondClientRights:
        return source.load(with_last_settings(given, last, rights=False))


def in_force(facts: SessionFacts) -> dict[str, Json]:
    """Return the settings that the next turn of a thread starts from."""
    settings = facts.settings
    return {
        "model": settings.model,
        "model_provider": facts.config.provider.id,
        "cwd": settings.cwd,
        "approval_policy": shown_approval_policy(settings.approval_policy, settings.granular),
        "active_permission_profile": active_profile(settings.permission_profile),
        "approvals_reviewer": ApprovalsReviewer.USER,
        "sandbox": shown_sandbox_policy(settings.sandbox_policy),
        "reasoning_effort": settings.effort,
        "instruction_sources": tuple(facts.instruction_sources),
        "runtime_workspace_roots": (settings.cwd, *settings.workspace_roots),
    }


def client_tools(specs: Sequence[wire.DynamicToolSpec]) -> tuple[ClientTool, ...]:
    """Return all tools, without the groups. Every tool is offered from the beginning, also one that may be loaded
    later. Raises RpcError for an empty group.
    """
    return tuple(tool for spec in specs for tool in _tools(spec))


def _tools(spec: wire.DynamicToolSpec) -> Iterator[ClientTool]:
    match spec:
        case wire.FunctionDynamicToolSpec():
            yield alike(ClientTool, spec, namespace=None)
        case wire.NamespaceDynamicToolSpec():
            if not spec.tools:
                text = f"dynamic tool namespace must contain at least one tool: {spec.name[:128]}"
                raise invalid_field(text, "dynamicTools")
            for tool in spec.tools:
                yield alike(ClientTool, tool, namespace=spec.name)
