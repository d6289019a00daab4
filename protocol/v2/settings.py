"""The settings of a thread, that hold for its next turns; and the modes in which it can work."""

from enum import StrEnum

from protocol.base import EngineModel, WireModel
from protocol.fields import CleanText
from protocol.paths import PathText
from protocol.policy import ReasoningSummary
from protocol.structs import EngineStruct, WireStruct
from protocol.v2.fields import AbsolutePathBuf, ReasoningEffort
from protocol.v2.policy import ActivePermissionProfile, ApprovalsReviewer, AskForApproval, SandboxPolicy


class Personality(StrEnum):
    NONE = "none"
    FRIENDLY = "friendly"
    PRAGMATIC = "pragmatic"


class ModeKind(StrEnum):
    PLAN = "plan"
    DEFAULT = "default"


class CollaborationSettings(EngineModel):
    """The settings that a mode brings along."""

    model: str
    reasoning_effort: ReasoningEffort | None = None
    developer_instructions: CleanText | None = None


class CollaborationMode(WireModel):
    mode: ModeKind
    settings: CollaborationSettings


class CollaborationModeMask(EngineStruct):
    """A mode, and what it changes in the settings; null leaves a setting alone."""

    name: str
    mode: ModeKind | None = None
    model: str | None = None
    reasoning_effort: ReasoningEffort | None = None


class CollaborationModeListParams(WireModel):
    pass


class CollaborationModeListResponse(WireStruct):
    data: tuple[CollaborationModeMask, ...]


class ThreadSettings(WireStruct):
    """All settings in force."""

    cwd: AbsolutePathBuf
    approval_policy: AskForApproval
    approvals_reviewer: ApprovalsReviewer
    sandbox_policy: SandboxPolicy
    active_permission_profile: ActivePermissionProfile | None = None
    model: str
    model_provider: str
    service_tier: str | None = None
    effort: ReasoningEffort | None = None
    summary: ReasoningSummary | None = None
    collaboration_mode: CollaborationMode
    personality: Personality | None = None


class ThreadSettingsUpdateParams(WireModel):
    """The settings to change; they hold from the next turn on."""

    thread_id: str
    cwd: PathText | None = None
    approval_policy: AskForApproval | None = None
    approvals_reviewer: ApprovalsReviewer | None = None
    sandbox_policy: SandboxPolicy | None = None
    permissions: str | None = None
    model: str | None = None
    service_tier: str | None = None
    effort: ReasoningEffort | None = None
    summary: ReasoningSummary | None = None
    collaboration_mode: CollaborationMode | None = None
    personality: Personality | None = None


class ThreadSettingsUpdateResponse(WireStruct):
    pass


class ThreadSettingsUpdatedNotification(WireStruct):
    thread_id: str
    thread_settings: ThreadSettings
