"""The settings of a thread's next turns: the agent's permissions (when it asks, its sandbox, who reviews), its
personality and the modes in which it can work.

Other spellings of policies that clients send (kebab-case names) are accepted and never written.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Final, Literal, get_args

from pydantic import BeforeValidator, ConfigDict, Discriminator, Field, Tag
from pydantic.alias_generators import to_camel
from typing_extensions import TypeAliasType

from app_server_protocol.base import EngineModel, WireModel
from app_server_protocol.encoding import Json
from app_server_protocol.ids import AbsolutePath, PathText
from app_server_protocol.method_table import ClientRequest, NoFields, NoResult, ServerNotification
from app_server_protocol.outgoing import EngineStruct, WireStruct
from app_server_protocol.policy import ReasoningSummary, SandboxMode, kebab, snake
from app_server_protocol.v2.fields import AbsolutePathBuf, ByPages, InThread, ReasoningEffort, experimental
from app_server_protocol.wire_fields import CleanText, Flag


class ApprovalMode(StrEnum):
    """When a command needs the user's consent. `on-failure`, which this API dropped, is read as `on-request`."""

    UNTRUSTED = "untrusted"
    ON_REQUEST = "on-request"
    NEVER = "never"

    @classmethod
    def _missing_(cls, value: object) -> "ApprovalMode | None":
        word = _OTHER_WORDS.get(kebab(value)) if isinstance(value, str) else None
        return None if word is None else cls(word)


_OTHER_WORDS: Final = {
    "on-failure": "on-request",
    "on-request": "on-request",
    "unless-trusted": "untrusted",
}


class GranularApproval(EngineModel):
    """Which kinds of questions reach the user; those that do not are answered with no."""

    sandbox_approval: Flag
    rules: Flag
    skill_approval: Flag = False
    request_permissions: Flag = False
    mcp_elicitations: Flag


class GranularAskForApproval(WireModel):
    """Experimental: decided kind by kind."""

    model_config = ConfigDict(extra="forbid")
    granular: GranularApproval


def _approval_kind(raw: Json) -> str:
    return "granular" if isinstance(raw, Mapping | GranularAskForApproval) else "mode"


AskForApproval = TypeAliasType(
    "AskForApproval",
    Annotated[
        Annotated[ApprovalMode, Tag("mode")] | Annotated[GranularAskForApproval, Tag("granular")],
        Discriminator(_approval_kind),
    ],
)


class ApprovalsReviewer(StrEnum):
    """Answerer of questions. This server asks the user, whatever is set."""

    USER = "user"
    AUTO_REVIEW = "auto_review"
    GUARDIAN_SUBAGENT = "guardian_subagent"


NetworkAccess = TypeAliasType("NetworkAccess", Literal["restricted", "enabled"])


class DangerFullAccessSandboxPolicy(WireModel):
    """No sandbox at all."""

    type: Literal["dangerFullAccess"] = "dangerFullAccess"


class ReadOnlySandboxPolicy(WireModel):
    """Everything may be read, nothing written."""

    type: Literal["readOnly"] = "readOnly"
    network_access: Flag = False


class ExternalSandboxSandboxPolicy(WireModel):
    """Whoever runs this server confines it; commands get no sandbox of ours."""

    type: Literal["externalSandbox"] = "externalSandbox"
    network_access: NetworkAccess = "restricted"


class WorkspaceWriteSandboxPolicy(WireModel):
    """Like read-only, but the working directory, the given roots and the temporary folders may be written."""

    type: Literal["workspaceWrite"] = "workspaceWrite"
    writable_roots: tuple[AbsolutePath, ...] = ()
    network_access: Flag = False
    exclude_tmpdir_env_var: Flag = False
    exclude_slash_tmp: Flag = False


_AnyPolicy = (
    DangerFullAccessSandboxPolicy
    | ReadOnlySandboxPolicy
    | ExternalSandboxSandboxPolicy
    | WorkspaceWriteSandboxPolicy
)
SANDBOX_TYPES: Final = tuple(str(kind.model_fields["type"].default) for kind in get_args(_AnyPolicy))


def _usual_spelling(raw: Json) -> Json:
    """Return a policy in any client's spelling with its type and its fields in the spelling of this API. A policy with
    the tag of the conversation API is invalid: a policy that is not understood grants nothing.
    """
    if not isinstance(raw, Mapping):
        return raw
    fields = {to_camel(snake(key)): value for key, value in raw.items() if isinstance(key, str)}
    tag = fields.get("type")
    return {**fields, "type": to_camel(snake(tag)) if isinstance(tag, str) else tag}


SandboxPolicy = TypeAliasType(
    "SandboxPolicy",
    Annotated[Annotated[_AnyPolicy, Field(discriminator="type")], BeforeValidator(_usual_spelling)],
)


class ActivePermissionProfile(WireStruct):
    """The named profile that the sandbox and the policies in force came from."""

    id: str
    extends: str | None = None


class PermissionProfileSummary(WireStruct):
    """A profile that a thread can be given by its id."""

    id: str
    description: str | None = None
    allowed: bool


class PermissionProfileListParams(ByPages):
    cwd: PathText | None = None


class PermissionProfileListResponse(WireStruct):
    data: tuple[PermissionProfileSummary, ...]
    next_cursor: str | None = None


Personality = TypeAliasType("Personality", Literal["none", "friendly", "pragmatic"])


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


class CollaborationModeListResponse(WireStruct):
    data: tuple[CollaborationModeMask, ...]


class ThreadOptions(WireModel):
    """Settings of a thread; what is null comes from the configuration, or from the thread that goes on.

    `config` holds further settings by their dotted name in the configuration file."""

    model: str | None = None
    model_provider: str | None = None
    service_tier: str | None = None
    cwd: PathText | None = None
    runtime_workspace_roots: tuple[AbsolutePath, ...] | None = experimental()
    approval_policy: AskForApproval | None = None
    approvals_reviewer: ApprovalsReviewer | None = None
    sandbox: SandboxMode | None = None
    permissions: str | None = experimental()
    config: dict[str, Json] | None = None
    base_instructions: CleanText | None = None
    developer_instructions: CleanText | None = None


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


class TurnSettings(WireModel):
    """Settings of the next turn and of those after it; what is null stays as it is."""

    cwd: PathText | None = None
    approval_policy: AskForApproval | None = None
    approvals_reviewer: ApprovalsReviewer | None = None
    sandbox_policy: SandboxPolicy | None = None
    model: str | None = None
    service_tier: str | None = None
    effort: ReasoningEffort | None = None
    summary: ReasoningSummary | None = None
    personality: Personality | None = None


class ThreadSettingsUpdateParams(TurnSettings, InThread):
    """The settings to change; they hold from the next turn on."""

    permissions: str | None = None
    collaboration_mode: CollaborationMode | None = None


class ThreadSettingsUpdatedNotification(WireStruct):
    thread_id: str
    thread_settings: ThreadSettings


PERMISSION_PROFILE_LIST: Final = ClientRequest(
    "permissionProfile/list",
    PermissionProfileListParams,
    PermissionProfileListResponse,
    "The named sandboxes that a thread can be given, by pages.",
)
COLLABORATION_MODE_LIST: Final = ClientRequest(
    "collaborationMode/list",
    NoFields,
    CollaborationModeListResponse,
    "The modes in which a thread can work.",
    experimental=True,
)
THREAD_SETTINGS_UPDATE: Final = ClientRequest(
    "thread/settings/update",
    ThreadSettingsUpdateParams,
    NoResult,
    "Sets what the next turns work with.",
    experimental=True,
)
THREAD_SETTINGS_UPDATED: Final = ServerNotification(
    "thread/settings/updated", ThreadSettingsUpdatedNotification, "The settings of a thread changed."
)
