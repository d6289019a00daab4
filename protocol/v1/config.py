"""The user's saved settings, and the model that new conversations begin with."""

from enum import StrEnum

from protocol.base import WireModel
from protocol.policy import AskForApproval, ReasoningEffort, ReasoningSummary, SandboxMode, Verbosity
from protocol.structs import WireStruct


class ForcedLoginMethod(StrEnum):
    CHATGPT = "chatgpt"
    API = "api"


class SandboxSettings(WireStruct):
    writable_roots: tuple[str, ...] = ()
    network_access: bool | None = None
    exclude_tmpdir_env_var: bool | None = None
    exclude_slash_tmp: bool | None = None


class Tools(WireStruct):
    web_search: bool | None = None
    view_image: bool | None = None


class Profile(WireStruct):
    model: str | None = None
    model_provider: str | None = None
    approval_policy: AskForApproval | None = None
    model_reasoning_effort: ReasoningEffort | None = None
    model_reasoning_summary: ReasoningSummary | None = None
    model_verbosity: Verbosity | None = None
    chatgpt_base_url: str | None = None


class UserSavedConfig(WireStruct):
    """What the user's configuration file says, without defaults."""

    approval_policy: AskForApproval | None = None
    sandbox_mode: SandboxMode | None = None
    sandbox_settings: SandboxSettings | None = None
    forced_chatgpt_workspace_id: str | None = None
    forced_login_method: ForcedLoginMethod | None = None
    model: str | None = None
    model_reasoning_effort: ReasoningEffort | None = None
    model_reasoning_summary: ReasoningSummary | None = None
    model_verbosity: Verbosity | None = None
    tools: Tools | None = None
    profile: str | None = None
    profiles: dict[str, Profile]


class GetUserSavedConfigResponse(WireStruct):
    config: UserSavedConfig


class SetDefaultModelParams(WireModel):
    """The model and effort to write into the user's configuration; null removes the setting."""

    model: str | None = None
    reasoning_effort: ReasoningEffort | None = None


class SetDefaultModelResponse(WireStruct):
    pass
