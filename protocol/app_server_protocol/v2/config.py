"""The configuration in force, the source of each setting, and writing to the user's file.

Settings are spelled as in that file, in snake_case; null if they are not set.
"""

from typing import Annotated, Final, Literal

from pydantic import ConfigDict, Field
from typing_extensions import TypeAliasType

from app_server_protocol.base import EngineModel, Foreign, WireModel, unserved
from app_server_protocol.encoding import Json
from app_server_protocol.ids import PathText
from app_server_protocol.method_table import ClientRequest, NoParams
from app_server_protocol.outgoing import EngineStruct, WireStruct
from app_server_protocol.policy import ReasoningSummary, SandboxMode, Verbosity
from app_server_protocol.v2.fields import AbsolutePathBuf, ReasoningEffort
from app_server_protocol.v2.settings import ApprovalsReviewer, AskForApproval
from app_server_protocol.wire_fields import Flag


class AnalyticsConfig(WireModel):
    model_config = ConfigDict(extra="allow")
    enabled: bool | None = None


ForcedChatgptWorkspaceIds = TypeAliasType("ForcedChatgptWorkspaceIds", str | tuple[str, ...])


ForcedLoginMethod = TypeAliasType("ForcedLoginMethod", Literal["chatgpt", "api"])


AutoCompactTokenLimitScope = TypeAliasType(
    "AutoCompactTokenLimitScope", Literal["total", "body_after_prefix"]
)


class SandboxWorkspaceWrite(EngineStruct):
    writable_roots: tuple[str, ...] = ()
    network_access: bool = False
    exclude_tmpdir_env_var: bool = False
    exclude_slash_tmp: bool = False


WebSearchContextSize = TypeAliasType("WebSearchContextSize", Literal["low", "medium", "high"])


class WebSearchLocation(WireStruct, forbid_unknown_fields=True):
    country: str | None = None
    region: str | None = None
    city: str | None = None
    timezone: str | None = None


class WebSearchToolConfig(EngineStruct, forbid_unknown_fields=True):
    context_size: WebSearchContextSize | None = None
    allowed_domains: tuple[str, ...] | None = None
    location: WebSearchLocation | None = None


class ToolsV2(EngineStruct):
    web_search: WebSearchToolConfig | None = None


WebSearchMode = TypeAliasType("WebSearchMode", Literal["disabled", "cached", "indexed", "live"])


class ShownConfig(EngineModel):
    """The settings in force. Settings without a field here are kept as they are."""

    model_config = ConfigDict(extra="allow")
    model: str | None = None
    review_model: str | None = None
    model_context_window: int | None = None
    model_auto_compact_token_limit: int | None = None
    model_auto_compact_token_limit_scope: AutoCompactTokenLimitScope | None = None
    model_provider: str | None = None
    approval_policy: AskForApproval | None = None
    approvals_reviewer: ApprovalsReviewer | None = None
    sandbox_mode: SandboxMode | None = None
    sandbox_workspace_write: SandboxWorkspaceWrite | None = None
    forced_chatgpt_workspace_id: ForcedChatgptWorkspaceIds | None = None
    forced_login_method: ForcedLoginMethod | None = None
    web_search: WebSearchMode | None = None
    tools: ToolsV2 | None = None
    instructions: str | None = None
    developer_instructions: str | None = None
    compact_prompt: str | None = None
    model_reasoning_effort: ReasoningEffort | None = None
    model_reasoning_summary: ReasoningSummary | None = None
    model_verbosity: Verbosity | None = None
    service_tier: str | None = None
    analytics: AnalyticsConfig | None = None


class SystemConfigLayerSource(WireStruct):
    type: Literal["system"] = "system"
    file: AbsolutePathBuf


class UserConfigLayerSource(WireStruct):
    type: Literal["user"] = "user"
    file: AbsolutePathBuf
    profile: str | None = None


class ProjectConfigLayerSource(WireStruct):
    type: Literal["project"] = "project"
    dot_codex_folder: AbsolutePathBuf


class SessionFlagsConfigLayerSource(WireStruct):
    type: Literal["sessionFlags"] = "sessionFlags"


ConfigLayerSource = TypeAliasType(
    "ConfigLayerSource",
    Annotated[
        SystemConfigLayerSource
        | UserConfigLayerSource
        | ProjectConfigLayerSource
        | SessionFlagsConfigLayerSource,
        Field(discriminator="type"),
    ],
)


class ConfigLayer(WireStruct):
    name: ConfigLayerSource
    version: str
    config: Json
    disabled_reason: str | None = None


class ConfigLayerMetadata(WireStruct):
    """Which layer a setting comes from, and that layer's version."""

    name: ConfigLayerSource
    version: str


class ConfigReadParams(WireModel):
    """With a working directory, the settings of the project there count too."""

    include_layers: Flag = False
    cwd: PathText | None = None


class ConfigReadResponse(WireStruct):
    """The settings, and for each that is set where it comes from."""

    config: ShownConfig
    origins: dict[str, ConfigLayerMetadata]
    layers: tuple[ConfigLayer, ...] | None = None


MergeStrategy = TypeAliasType("MergeStrategy", Literal["replace", "upsert"])


class ConfigEdit(WireModel):
    key_path: str
    value: Json
    merge_strategy: MergeStrategy


class ConfigValueWriteParams(ConfigEdit):
    """One setting of the user's file. A version that is not the present one is refused."""

    file_path: PathText | None = None
    expected_version: str | None = None


class ConfigBatchWriteParams(WireModel):
    """Several settings at once: all or none."""

    edits: tuple[ConfigEdit, ...]
    file_path: PathText | None = None
    expected_version: str | None = None
    reload_user_config: Flag = False


WriteStatus = TypeAliasType("WriteStatus", Literal["ok", "okOverridden"])


class OverriddenMetadata(WireStruct):
    """Another layer has its own value, which stays in force."""

    message: str
    overriding_layer: ConfigLayerMetadata
    effective_value: Json


class ConfigWriteResponse(WireStruct):
    status: WriteStatus
    version: str
    file_path: AbsolutePathBuf
    overridden_metadata: OverriddenMetadata | None = None


class ConfigRequirementsReadResponse(WireStruct):
    requirements: Annotated[Foreign, unserved("ConfigRequirements")] | None = None


CONFIG_READ: Final = ClientRequest(
    "config/read",
    ConfigReadParams,
    ConfigReadResponse,
    "The configuration in force, and where each setting comes from.",
)
CONFIG_VALUE_WRITE: Final = ClientRequest(
    "config/value/write",
    ConfigValueWriteParams,
    ConfigWriteResponse,
    "Writes one setting into the user's file.",
)
CONFIG_BATCH_WRITE: Final = ClientRequest(
    "config/batchWrite",
    ConfigBatchWriteParams,
    ConfigWriteResponse,
    "Writes several settings into the user's file, all or none.",
)


class ModelProviderDefaultSetParams(WireModel):
    """The provider of threads that name none."""

    provider_id: str


MODEL_PROVIDER_DEFAULT_SET: Final = ClientRequest(
    "modelProvider/default/set",
    ModelProviderDefaultSetParams,
    ConfigWriteResponse,
    "Writes the default provider into the user's file.",
)
CONFIG_REQUIREMENTS_READ: Final = ClientRequest(
    "configRequirements/read",
    NoParams,
    ConfigRequirementsReadResponse,
    "What an administrator allows; null where there is no restriction.",
)
