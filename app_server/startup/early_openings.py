"""What `newConversation` and `thread/start` ask for and are answered, for `early_conversations`. Fast to import."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, assert_never

from app_server import STORED_VERSION
from app_server.core.config.types import Config, RequestOverrides
from app_server.startup.early_conversations import EarlyConversation, PlannedConversation
from app_server.startup.early_thread_shape import early_notification, early_thread
from app_server.startup.launch import Launch
from app_server.startup.overrides import settings_of_request
from protocol.jsonrpc import Request
from protocol.names import THREAD_STARTED
from protocol.origins import SessionOrigin
from protocol.paths import is_unicode
from protocol.policy import (
    AskForApproval,
    DangerFullAccess,
    ReadOnly,
    SandboxMode,
    SandboxPolicy,
    WorkspaceWrite,
    known_effort,
)

if TYPE_CHECKING:
    from protocol.base import Json

SETTINGS = {
    "model": "model",
    "modelProvider": "model_provider",
    "cwd": "cwd",
    "baseInstructions": "base_instructions",
    "developerInstructions": "developer_instructions",
}
"""Parameters that both methods have, and the overrides that they are."""

OF_CONVERSATIONS = {**SETTINGS, "profile": "profile", "compactPrompt": "compact_prompt"}


def planned_conversation(launch: Launch, request: Request) -> PlannedConversation | None:
    """`newConversation`. Raises ConfigError."""
    overrides = plain_overrides(request.params, OF_CONVERSATIONS)
    if overrides is None:
        return None
    return PlannedConversation(settings_of_request(launch, overrides), _as_conversation)


def planned_thread(launch: Launch, request: Request) -> PlannedConversation | None:
    """`thread/start`. Raises ConfigError."""
    overrides = plain_overrides(request.params, SETTINGS)
    if overrides is None:
        return None
    config = settings_of_request(launch, overrides)
    return PlannedConversation(config, _as_thread, _thread_started, frozenset((THREAD_STARTED,)))


def _as_conversation(new: EarlyConversation) -> dict[str, Json]:
    model = new.config.model
    return {
        "conversationId": new.begun.id,
        "model": model.name,
        "reasoningEffort": known_effort(model.effort),
        "rolloutPath": str(new.path),
    }


def _as_thread(new: EarlyConversation) -> dict[str, Json] | None:
    """None where it needs the full server."""
    settings = shown_settings(new.config, new.instruction_sources)
    return None if settings is None else {"thread": _thread(new), **settings}


def _thread_started(new: EarlyConversation) -> tuple[bytes, ...]:
    return early_notification(new.client, THREAD_STARTED, {"thread": _thread(new)})


def shown_settings(config: Config, instruction_sources: Sequence[str]) -> dict[str, Json] | None:
    """Those that the next turn starts from; None where they need the full server."""
    permissions, cwd = config.permissions, str(config.cwd)
    policy = permissions.approval_policy
    if permissions.granular is not None or permissions.profile is not None:
        return None
    return {
        "model": config.model.name,
        "modelProvider": config.provider.id,
        "serviceTier": None,
        "cwd": cwd,
        "runtimeWorkspaceRoots": [cwd],
        "instructionSources": list(instruction_sources),
        "approvalPolicy": AskForApproval.ON_REQUEST if policy is AskForApproval.ON_FAILURE else policy,
        "approvalsReviewer": "user",
        "sandbox": _shown_sandbox(permissions.sandbox_policy),
        "activePermissionProfile": None,
        "reasoningEffort": config.model.effort,
    }


def _thread(new: EarlyConversation) -> dict[str, Json]:
    config, seconds = new.config, int(new.begun.at.timestamp())
    fields = {
        "modelProvider": config.provider.id,
        "model": config.model.name,
        "reasoningEffort": config.model.effort,
        "createdAt": seconds,
        "status": {"type": "idle"},
        "path": str(new.path),
        "cwd": str(config.cwd),
        "cliVersion": STORED_VERSION,
        "originator": new.originator,
        "source": SessionOrigin.VSCODE,
    }
    return early_thread(new.begun.id, seconds, new.git, fields)


def _shown_sandbox(policy: SandboxPolicy) -> dict[str, Json]:
    match policy:
        case DangerFullAccess():
            return {"type": "dangerFullAccess"}
        case ReadOnly():
            return {"type": "readOnly", "networkAccess": False}
        case WorkspaceWrite():
            return {
                "type": "workspaceWrite",
                "writableRoots": list(policy.writable_roots),
                "networkAccess": policy.network_access,
                "excludeTmpdirEnvVar": policy.exclude_tmpdir_env_var,
                "excludeSlashTmp": policy.exclude_slash_tmp,
            }
        case _:
            assert_never(policy)


def plain_overrides(params: Json, texts: Mapping[str, str]) -> RequestOverrides | None:
    """None where a parameter is unknown, or not of the form that needs no validation."""
    given = {} if params is None else params
    if not isinstance(given, dict):
        return None
    settings: dict[str, Json] = {}
    for name, value in given.items():
        if value is None and name in (*texts, "approvalPolicy", "sandbox", "config"):
            continue
        match name, value:
            case "approvalPolicy", str() if value in set(AskForApproval):
                settings["approval_policy"] = AskForApproval(value)
            case "sandbox", str() if value in set(SandboxMode):
                settings["sandbox"] = value
            case "config", dict():
                settings["settings"] = value
            case str(), str() if name in texts and "\0" not in value and is_unicode(value):
                settings[texts[name]] = value
            case _:
                return None
    return RequestOverrides(**settings)
