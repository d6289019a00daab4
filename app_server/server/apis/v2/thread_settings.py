"""Conversion of the settings and states of a thread into the shapes of the thread API, and back: settings at opening,
changes by a request, settings in force; and the tools that a client brings. Pure.

A setting that the engine does not support is read as the nearest one that gives the agent no more rights than
requested; responses and notifications show the settings in force.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec.structs import asdict

from app_server.engine.config.config_values import Config, RequestOverrides
from app_server.engine.config.layers import SANDBOX_KEYS, THREAD_KEYS, split_key
from app_server.engine.config.permission_profiles import WORKSPACE, ProfileError, policy_named
from app_server.engine.support.engine_errors import UNREADABLE_CONFIG
from app_server.server.conversations.adapter import Activity, ConversationStatus
from app_server_protocol import policy as engine
from app_server_protocol.engine.questions import ClientTool
from app_server_protocol.engine.thread_settings import (
    RIGHTS,
    UNCHANGED,
    UNSET,
    ModeSettings,
    PromptMode,
    SettingsPatch,
    ThreadSettings,
    Unset,
    or_unset,
    patch_of,
)
from app_server_protocol.outgoing import struct_from
from app_server_protocol.policy import (
    PermissionProfile,
    SandboxPolicy,
    WorkspaceWrite,
    without_profile,
)
from app_server_protocol.rollout import TurnContextItem
from app_server_protocol.rpc_errors import invalid_field, invalid_params, invalid_request
from app_server_protocol.v2 import settings as wire
from app_server_protocol.v2 import thread, thread_open
from app_server_protocol.v2.turn import TurnStartParams
from app_server_protocol.values import replace

LOCAL: Final = "local"
"""Name of the environment that is the server's own machine."""

WITHOUT_SETTINGS: Final = frozenset(
    (
        *("thread_id", "input", "client_user_message_id", "additional_context", "output_schema"),
        "responsesapi_client_metadata",
    )
)
"""Parameters of `turn/start` that are no settings. Most turns have no others."""

MOST_SKILL_FOLDERS: Final = 32
"""Maximum number of folders with skills that a thread may bring."""


def require_one_way(permissions: str | None, *, beside: str, given: object) -> None:
    """Check that a profile is not named together with `given`, the value of the parameter `beside`, which says the same
    in another way. Raises RpcError if it is.
    """
    if permissions is not None and given is not None:
        raise invalid_field(f"`permissions` cannot be combined with `{beside}`", "permissions")


def chosen_policy(name: str, config: Config) -> SandboxPolicy:
    """Return the policy of a profile, by the settings that a thread was opened with. Raises RpcError."""
    try:
        return policy_named(config.permissions.profiles, name)
    except ProfileError as error:
        raise invalid_request(f"{UNREADABLE_CONFIG}{error}", "config") from error


def approval_policy(
    policy: wire.AskForApproval | None,
) -> tuple[engine.AskForApproval | None, engine.QuestionKinds | None]:
    """Return the policy, if there is one, and the kinds of questions that reach the user if not all kinds do."""
    if policy is None:
        return None, None
    if isinstance(policy, wire.GranularAskForApproval):
        return engine.AskForApproval.ON_REQUEST, engine.QuestionKinds(**dict(policy.granular))
    return engine.AskForApproval(policy.value), None


def shown_approval_policy(
    policy: engine.AskForApproval, kinds: engine.QuestionKinds | None
) -> wire.AskForApproval:
    if kinds is not None:
        return wire.GranularAskForApproval(granular=wire.GranularApproval(**asdict(kinds)))
    return wire.ApprovalMode(policy.value)


def sandbox_policy(policy: wire.SandboxPolicy) -> engine.SandboxPolicy:
    """Convert a client's policy. Read-only with network becomes read-only without; an external sandbox is not under
    this server's control, and means full access.
    """
    match policy:
        case wire.DangerFullAccessSandboxPolicy() | wire.ExternalSandboxSandboxPolicy():
            return engine.DangerFullAccess()
        case wire.ReadOnlySandboxPolicy():
            return engine.ReadOnly()
        case wire.WorkspaceWriteSandboxPolicy():
            return struct_from(engine.WorkspaceWrite, policy, mode="workspace-write")


def shown_sandbox_policy(policy: engine.SandboxPolicy, cwd: str) -> wire.SandboxPolicy:
    """Convert a policy; a profile is shown as the nearest of the others."""
    nearest = without_profile(policy, cwd)
    match nearest:
        case engine.DangerFullAccess():
            return wire.DangerFullAccessSandboxPolicy()
        case engine.ReadOnly():
            return wire.ReadOnlySandboxPolicy()
        case engine.WorkspaceWrite():
            same = asdict(nearest)
            del same["mode"]
            return wire.WorkspaceWriteSandboxPolicy(**same)


def thread_status(status: ConversationStatus) -> thread.ThreadStatus:
    match status.activity:
        case Activity.IDLE:
            return thread.IdleThreadStatus()
        case Activity.ACTIVE:
            flags: list[thread.ThreadActiveFlag] = ["waitingOnApproval"] if status.waiting_on_approval else []
            if status.waiting_on_input:
                flags.append("waitingOnUserInput")
            return thread.ActiveThreadStatus(active_flags=tuple(flags))
        case Activity.SYSTEM_ERROR:
            return thread.SystemErrorThreadStatus()
        case Activity.NOT_LOADED:
            return thread.NotLoadedThreadStatus()


def settings_change(
    params: TurnStartParams | wire.ThreadSettingsUpdateParams, config: Config
) -> SettingsPatch:
    """Return the changes that the request makes to the settings of a thread that was opened with `config`. Raises
    RpcError.
    """
    if params.model_fields_set <= WITHOUT_SETTINGS:
        return UNCHANGED
    sandbox = params.sandbox_policy
    policy, kinds = approval_policy(params.approval_policy)
    chosen = None if sandbox is None else sandbox_policy(sandbox)
    require_one_way(params.permissions, beside="sandboxPolicy", given=sandbox)
    if params.permissions is not None:
        chosen = chosen_policy(params.permissions, config)
    model, effort = params.model, params.effort
    set_effort: str | Unset | None = UNSET if effort is None else _effort(effort, "effort")
    way = params.collaboration_mode
    if way is not None:  # the mode names these as well, and takes precedence
        model, effort = way.settings.model, way.settings.reasoning_effort
        set_effort = None if effort is None else _effort(effort, "collaborationMode")
    return patch_of(
        params,
        approval_policy=or_unset(policy),
        granular=or_unset(kinds),
        sandbox_policy=or_unset(chosen),
        permission_profile=or_unset(params.permissions),
        workspace_roots=or_unset(
            params.runtime_workspace_roots if isinstance(params, TurnStartParams) else None
        ),
        model=or_unset(model),
        effort=set_effort,
        mode=UNSET if way is None else _mode(way),
        service_tier=chosen_tier(params),
    )


def chosen_tier(params: wire.TurnSettings | wire.ThreadOptions) -> str | Unset:
    """Return the service tier that a request names; null stands for the provider's usual one."""
    if "service_tier" not in params.model_fields_set:
        return UNSET
    return params.service_tier or engine.DEFAULT_TIER


def _effort(word: str, field: str) -> str:
    """Check only the length of a reasoning effort, because models define their own efforts."""
    if not 1 <= len(word) <= engine.MAX_EFFORT_LENGTH:
        raise invalid_field(f"a reasoning effort must have 1 to {engine.MAX_EFFORT_LENGTH} characters", field)
    return word


def _mode(way: wire.CollaborationMode) -> ModeSettings:
    return ModeSettings(engine.TurnMode(way.mode.value), way.settings.developer_instructions or None)


def collaboration_mode(now: ThreadSettings) -> wire.CollaborationMode:
    settings = wire.CollaborationSettings(
        model=now.model, reasoning_effort=now.effort, developer_instructions=now.mode.instructions
    )
    return wire.CollaborationMode(mode=wire.ModeKind(now.mode.kind.value), settings=settings)


def active_profile(now: ThreadSettings) -> wire.ActivePermissionProfile | None:
    """Return the profile in force; None if a sandbox was chosen in another way."""
    if now.permission_profile is None:
        return None
    extends = now.sandbox_policy.extends if isinstance(now.sandbox_policy, PermissionProfile) else None
    return wire.ActivePermissionProfile(id=now.permission_profile, extends=extends)


def shown_settings(now: ThreadSettings, model_provider: str) -> wire.ThreadSettings:
    """Return the settings that the next turn of a thread starts from, in the shape of this API. The personality is
    always null, because it has no effect here.
    """
    return struct_from(
        wire.ThreadSettings,
        now,
        approval_policy=shown_approval_policy(now.approval_policy, now.granular),
        approvals_reviewer=wire.ApprovalsReviewer.USER,
        sandbox_policy=shown_sandbox_policy(now.sandbox_policy, now.cwd),
        active_permission_profile=active_profile(now),
        model_provider=model_provider,
        collaboration_mode=collaboration_mode(now),
        personality=None,
    )


def with_last_settings(
    given: RequestOverrides, last: TurnContextItem | None, *, rights: bool = True, sandbox: bool = True
) -> RequestOverrides:
    """Return the request's settings, completed with those of the thread's last turn. `last` is None if there was none.
    If `rights` is False, the thread's rights are those of the user's configuration; if `sandbox` is False, only its
    sandbox is.

    A setting of the last turn does not count if the request gives it, in a field or in its `config` map. Neither do
    effort and service tier if the request names a model.
    """
    if last is None:
        return given
    in_map = {part for key in given.settings for part in split_key(key)[:1]}
    left = {"sandbox_policy", *(field for field, key in THREAD_KEYS.items() if key in in_map)}
    if given.patch.model is not UNSET or "model" in in_map:
        left |= {"effort", "service_tier"}
    if last.chosen_effort is None:  # the configured effort holds
        left.add("effort")
    kept = last.system_prompt
    if given.base_instructions is not None and kept is not None and kept.mode is PromptMode.OVERRIDE:
        left.add("system_prompt")
    if not rights:
        left |= set(RIGHTS)
    # The user's settings say what a sandbox means, so that it is restored by its name.
    names_sandbox = given.sandbox is not None or given.patch.permission_profile is not UNSET
    if not (rights and sandbox) or names_sandbox or in_map & set(SANDBOX_KEYS):
        return replace(given, patch=given.patch.over(last.patch().without({*left, "permission_profile"})))
    settings = dict(given.settings)
    if last.profile_id in (None, WORKSPACE):
        settings |= _workspace_settings(last.sandbox_policy)
    return replace(
        given,
        settings=settings,
        sandbox=last.sandbox_policy.mode if last.profile_id is None else None,
        patch=given.patch.over(last.patch().without(left)),
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
    require_one_way(params.permissions, beside="sandbox", given=sandbox)
    policy, kinds = approval_policy(params.approval_policy)
    return RequestOverrides(
        patch=patch_of(
            params,
            approval_policy=or_unset(policy),
            granular=or_unset(kinds),
            permission_profile=or_unset(params.permissions),
            workspace_roots=or_unset(params.runtime_workspace_roots),
            service_tier=chosen_tier(params),
        ),
        settings=params.config or {},
        sandbox=sandbox,
        model_provider=params.model_provider,
        base_instructions=params.base_instructions,
        developer_instructions=params.developer_instructions,
    )


def skill_folders(roots: Sequence[thread_open.SelectedCapabilityRoot]) -> tuple[str, ...]:
    """Return the folders with skills that a client chose. Raises RpcError for a folder of another machine, and for too
    many folders.
    """
    if len(roots) > MOST_SKILL_FOLDERS:
        text = f"selectedCapabilityRoots: at most {MOST_SKILL_FOLDERS} are taken"
        raise invalid_params(text, "selectedCapabilityRoots")
    for root in roots:
        if root.location.environment_id != LOCAL:
            raise invalid_params(
                "selectedCapabilityRoots: the only environment is `local`", "selectedCapabilityRoots"
            )
    return tuple(root.location.path for root in roots)


def client_tools(specs: Sequence[thread_open.DynamicToolSpec]) -> tuple[ClientTool, ...]:
    """Return all tools, without the groups. Every tool is offered from the beginning, also one that may be loaded
    later. Raises RpcError for an empty group.
    """
    return tuple(tool for spec in specs for tool in _tools(spec))


def _tools(spec: thread_open.DynamicToolSpec) -> Iterator[ClientTool]:
    match spec:
        case thread_open.FunctionDynamicToolSpec():
            yield struct_from(ClientTool, spec, namespace=None)
        case thread_open.NamespaceDynamicToolSpec():
            if not spec.tools:
                text = f"dynamic tool namespace must contain at least one tool: {spec.name[:128]}"
                raise invalid_field(text, "dynamicTools")
            for tool in spec.tools:
                yield struct_from(ClientTool, tool, namespace=spec.name)
