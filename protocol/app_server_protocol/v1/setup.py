"""Methods that belong to no conversation: the handshake, the account, the user's saved settings, the models that can be
chosen; files, git, and commands.
"""

from enum import StrEnum
from typing import Annotated, Final, NewType

from pydantic import BeforeValidator, ConfigDict, Field

from app_server_protocol import jsonrpc
from app_server_protocol.base import WireModel
from app_server_protocol.encoding import Json
from app_server_protocol.ids import PathText
from app_server_protocol.method_table import (
    ClientNotification,
    ClientRequest,
    NoParams,
    NoResult,
    ServerNotification,
)
from app_server_protocol.outgoing import EngineStruct, WireStruct
from app_server_protocol.policy import (
    AskForApproval,
    ReasoningEffort,
    ReasoningSummary,
    SandboxMode,
    Verbosity,
)
from app_server_protocol.wire_fields import Count, Flag, SandboxPolicy


def _object_or_none(value: Json) -> Json:
    return value if isinstance(value, dict) else None


class ClientInfo(WireModel):
    """Name and version of the client; they go into the user agent."""

    name: str
    title: str | None = None
    version: str


class ClientCapabilities(WireModel):
    """Capabilities of a client beyond the conversation API; nothing of it is sent to clients that do not say so. What
    is unknown or of another shape is ignored.
    """

    model_config = ConfigDict(extra="allow")
    elicitation: Annotated[Flag, BeforeValidator(lambda value: value is True)] = False
    """Answers `elicitationRequest`."""


class InitializeParams(WireModel):
    client_info: ClientInfo
    capabilities: Annotated[ClientCapabilities | None, BeforeValidator(_object_or_none)] = None


class ServerCapabilities(WireStruct):
    """Capabilities of this server beyond the conversation API, by name."""

    extensions: tuple[str, ...] = ()


class InitializeResponse(WireStruct, omit_defaults=True):
    """The user agent of the server's requests; capabilities only for a client that sent its own."""

    user_agent: str
    capabilities: ServerCapabilities | None = None


class WideInitializeResponse(InitializeResponse):
    """Answer to clients that announce capabilities: those of newer APIs need it."""

    codex_home: str
    platform_family: str
    platform_os: str


class GetUserAgentResponse(WireStruct):
    user_agent: str


class UserInfoResponse(WireStruct):
    alleged_user_email: str | None = None


class AuthMode(StrEnum):
    APIKEY = "apikey"
    CHATGPT = "chatgpt"


class LoginApiKeyParams(WireModel):
    api_key: str = Field(repr=False)


class LoginChatGptResponse(WireStruct):
    """Address for the user's browser, and the id that `loginChatGptComplete` will carry."""

    login_id: str
    auth_url: str


class CancelLoginChatGptParams(WireModel):
    login_id: str


class GetAuthStatusParams(WireModel):
    include_token: Flag | None = None
    refresh_token: Flag | None = None


class GetAuthStatusResponse(WireModel):
    auth_method: AuthMode | None = None
    auth_token: str | None = Field(default=None, repr=False)
    requires_openai_auth: bool | None = None


class AuthStatusChangeNotification(WireStruct):
    """The way of logging in changed; null after a logout."""

    auth_method: AuthMode | None = None


class LoginChatGptCompleteNotification(WireStruct):
    """A login through the browser ended. After the answer to `loginChatGpt`; on success
    `authStatusChange` follows."""

    login_id: str
    success: bool
    error: str | None = None


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
    """Settings in the user's configuration file, without defaults."""

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


class ReasoningEffortOption(WireStruct):
    reasoning_effort: ReasoningEffort
    description: str


class ModelEntry(WireStruct):
    """One model. `model` is what a conversation is given, `id` distinguishes entries of this list."""

    id: str
    model: str
    display_name: str
    description: str
    supported_reasoning_efforts: tuple[ReasoningEffortOption, ...]
    default_reasoning_effort: ReasoningEffort
    is_default: bool


class ModelListParams(WireModel):
    cursor: str | None = None
    limit: Count | None = None


class ModelListResponse(WireStruct):
    data: tuple[ModelEntry, ...]
    next_cursor: str | None = None


GitSha = NewType("GitSha", str)


class FuzzyFileSearchParams(WireModel):
    """Finds files below the roots whose path resembles the query. A search with the same token ends the one
    before."""

    query: str
    roots: tuple[PathText, ...]
    cancellation_token: str | None = None


class FuzzyFileSearchResult(EngineStruct):
    """One hit, in snake_case as the clients of this method expect; `indices` are the matching characters."""

    root: str
    path: str
    file_name: str
    score: int
    indices: tuple[int, ...] | None = None


class FuzzyFileSearchResponse(WireStruct):
    files: tuple[FuzzyFileSearchResult, ...]


class GitDiffToRemoteParams(WireModel):
    cwd: PathText


class GitDiffToRemoteResponse(WireStruct):
    """The nearest commit that the remote has, and all that changed since, untracked files too."""

    sha: GitSha
    diff: str


class ExecOneOffCommandParams(WireModel):
    """Runs a command without a conversation. Without a policy the configured sandbox holds."""

    command: tuple[str, ...]
    timeout_ms: Count | None = None
    cwd: PathText | None = None
    sandbox_policy: SandboxPolicy | None = None


class ExecOneOffCommandResponse(WireStruct):
    exit_code: int
    stdout: str
    stderr: str


INITIALIZE: Final = ClientRequest(
    jsonrpc.INITIALIZE,
    InitializeParams,
    InitializeResponse,
    "Opens the connection. Must be the first request, and comes once.",
)
GIT_DIFF_TO_REMOTE: Final = ClientRequest(
    "gitDiffToRemote",
    GitDiffToRemoteParams,
    GitDiffToRemoteResponse,
    "The difference between a working tree and the nearest commit that its remote has.",
)
LOGIN_API_KEY: Final = ClientRequest(
    "loginApiKey", LoginApiKeyParams, NoResult, "Stores an API key. `authStatusChange` follows."
)
LOGIN_CHAT_GPT: Final = ClientRequest(
    "loginChatGpt",
    NoParams,
    LoginChatGptResponse,
    "Starts a login through the browser. `loginChatGptComplete` follows when it ended.",
)
CANCEL_LOGIN_CHAT_GPT: Final = ClientRequest(
    "cancelLoginChatGpt", CancelLoginChatGptParams, NoResult, "Gives up a login through the browser."
)
LOGOUT_CHAT_GPT: Final = ClientRequest(
    "logoutChatGpt",
    NoParams,
    NoResult,
    "Forgets the stored login, of whatever kind. `authStatusChange` follows.",
)
GET_AUTH_STATUS: Final = ClientRequest(
    "getAuthStatus",
    GetAuthStatusParams,
    GetAuthStatusResponse,
    "Whether and how the user is logged in; with the token only if asked for.",
)
GET_USER_SAVED_CONFIG: Final = ClientRequest(
    "getUserSavedConfig",
    NoParams,
    GetUserSavedConfigResponse,
    "What the user's configuration file says.",
)
SET_DEFAULT_MODEL: Final = ClientRequest(
    "setDefaultModel",
    SetDefaultModelParams,
    NoResult,
    "Writes model and effort into the user's configuration file.",
)
GET_USER_AGENT: Final = ClientRequest(
    "getUserAgent", NoParams, GetUserAgentResponse, "The user agent of the server's requests."
)
USER_INFO: Final = ClientRequest(
    "userInfo",
    NoParams,
    UserInfoResponse,
    "What the stored login says about the user, unverified.",
)
FUZZY_FILE_SEARCH: Final = ClientRequest(
    "fuzzyFileSearch",
    FuzzyFileSearchParams,
    FuzzyFileSearchResponse,
    "Finds files by a rough spelling of their path, best first.",
)
EXEC_ONE_OFF_COMMAND: Final = ClientRequest(
    "execOneOffCommand",
    ExecOneOffCommandParams,
    ExecOneOffCommandResponse,
    "Runs a command in the sandbox, without a conversation and without asking.",
)
MODEL_LIST: Final = ClientRequest(
    "model/list",
    ModelListParams,
    ModelListResponse,
    "The models that can be chosen, by pages.",
)
INITIALIZED: Final = ClientNotification(jsonrpc.INITIALIZED, "The client is ready. Accepted, not required.")
AUTH_STATUS_CHANGE: Final = ServerNotification(
    "authStatusChange",
    AuthStatusChangeNotification,
    "After a login or a logout; the method is null when nobody is logged in.",
)
LOGIN_CHAT_GPT_COMPLETE: Final = ServerNotification(
    "loginChatGptComplete",
    LoginChatGptCompleteNotification,
    "A login through the browser succeeded, failed or timed out.",
)
