"""The configuration for the engine: frozen values with every default applied.

Types only. `toml_file` reads files, `layers` merges, `resolve` checks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Final

import msgspec
from msgspec import Struct

from app_server.core.config.features import Features
from app_server.core.config.model_tables import ModelSettings, ModelTables
from app_server.core.config.profile_settings import ProfileSettings
from app_server.core.errors import FilePosition
from app_server_protocol.policy import (
    AskForApproval,
    QuestionKinds,
    ReadOnly,
    SandboxPolicy,
    TurnMode,
)
from app_server_protocol.structs import Discreet, Json

OPENAI = "openai"
ANTHROPIC = "anthropic"

NO_ENTRIES: Mapping[str, str] = MappingProxyType({})


class WireApi(StrEnum):
    """Which HTTP API a provider speaks."""

    RESPONSES = "responses"
    CHAT = "chat"
    MESSAGES = "messages"


class ProviderConfig(Discreet, frozen=True, kw_only=True):
    """The address of a model provider, and the headers and parameters of its requests."""

    HIDDEN = ("query_params", "http_headers", "experimental_bearer_token")
    id: str
    name: str
    base_url: str | None = None
    env_key: str | None = None
    env_key_instructions: str | None = None
    wire_api: WireApi = WireApi.CHAT
    says_wire: bool = False
    """Whether somebody chose the API; else it is as is known of the provider's host."""
    auth: str | None = None
    """Header that carries the key: `bearer` or `x-api-key`; None: as the API has it."""
    cache_ttl: str | None = None
    """Of the Messages API: how long the provider keeps what it caches, `5m` or `1h`; None for its own choice."""
    query_params: Mapping[str, str] = NO_ENTRIES
    http_headers: Mapping[str, str] = NO_ENTRIES
    env_http_headers: Mapping[str, str] = NO_ENTRIES
    request_max_retries: int = 4
    stream_max_retries: int = 5
    stream_idle_timeout_ms: int = 300_000
    requires_openai_auth: bool = False
    quirks: Mapping[str, Json] = MappingProxyType({})
    """The user's values of `core.model.quirks.Quirks`."""
    experimental_bearer_token: str | None = None


WORKSPACE: Final = "workspace"
"""As an MCP server's `cwd`: the folder of the conversation."""


class McpStdioTransport(Discreet, frozen=True, kw_only=True):
    """An MCP server that is a child process."""

    HIDDEN = ("args", "env")
    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = NO_ENTRIES
    env_vars: tuple[str, ...] = ()
    cwd: str | None = None
    """An absolute path, or `workspace`; None: a folder of the server's own."""


class McpHttpTransport(Discreet, frozen=True, kw_only=True):
    """An MCP server that is reached over streamable HTTP."""

    HIDDEN = ("http_headers",)
    url: str
    bearer_token_env_var: str | None = None
    http_headers: Mapping[str, str] = NO_ENTRIES
    env_http_headers: Mapping[str, str] = NO_ENTRIES

    @property
    def sends_token(self) -> bool:
        """Whether the settings name what the server is sent about who asks."""
        headers = {name.lower() for name in (*self.http_headers, *self.env_http_headers)}
        return self.bearer_token_env_var is not None or "authorization" in headers


class McpApproval(StrEnum):
    """Which calls of a tool need the user's consent."""

    AUTO = "auto"
    """Those of tools that may destroy something or reach the open world, by the hints of the server."""
    PROMPT = "prompt"
    """All."""
    WRITES = "writes"
    """Those of tools that do not say that they only read."""
    APPROVE = "approve"
    """None."""


class McpServerConfig(Struct, frozen=True, kw_only=True):
    """One `[mcp_servers.NAME]` table."""

    name: str
    transport: McpStdioTransport | McpHttpTransport
    enabled: bool = True
    startup_timeout_sec: float = 10.0
    tool_timeout_sec: float = 60.0
    enabled_tools: frozenset[str] | None = None
    disabled_tools: frozenset[str] = frozenset()
    approval: McpApproval = McpApproval.AUTO
    tool_approvals: Mapping[str, McpApproval] = msgspec.field(default_factory=lambda: MappingProxyType({}))
    """By tool, before `approval`."""


class EnvInherit(StrEnum):
    """The subset of the server's variables that a command inherits."""

    ALL = "all"
    CORE = "core"
    NONE = "none"


class ShellEnvironmentPolicy(Discreet, frozen=True, kw_only=True):
    """Policy by which the environment of a command is derived from the server's."""

    HIDDEN = ("set",)
    inherit: EnvInherit = EnvInherit.ALL
    ignore_default_excludes: bool = False
    exclude: tuple[str, ...] = ()
    set: Mapping[str, str] = NO_ENTRIES
    include_only: tuple[str, ...] = ()


class HistoryPersistence(StrEnum):
    """Choice of whether what the user typed is appended to history.jsonl."""

    SAVE_ALL = "save-all"
    NONE = "none"


class HistoryConfig(Struct, frozen=True, kw_only=True):
    persistence: HistoryPersistence = HistoryPersistence.SAVE_ALL
    max_bytes: int | None = None


class OtelExporter(StrEnum):
    NONE = "none"
    OTLP_HTTP = "otlp-http"
    OTLP_GRPC = "otlp-grpc"


class OtelProtocol(StrEnum):
    BINARY = "binary"
    JSON = "json"


class OtelConfig(Discreet, frozen=True, kw_only=True):
    """Destination of telemetry; none by default."""

    HIDDEN = ("headers",)
    environment: str = "dev"
    exporter: OtelExporter = OtelExporter.NONE
    endpoint: str | None = None
    headers: Mapping[str, str] = NO_ENTRIES
    protocol: OtelProtocol = OtelProtocol.BINARY
    log_user_prompt: bool = False


class SharingSettings(Struct, frozen=True, kw_only=True):
    """Settings of how a shared server serves; in a client's own server none of them counts."""

    shared: bool = False
    """Read before anything else is loaded, by `proxy.words`."""
    idle_exit_minutes: float = 30
    """So long it stays without a client and without work; 0: for ever."""
    drain_seconds: float = 60
    """So long turns may go on once it is to stop."""
    unwatched_minutes: float = 60
    """So long a turn goes on that nobody follows; 0: not at all."""
    question_hours: float = 24
    """So long a question waits for somebody who could answer it."""


class PermissionSettings(Struct, frozen=True, kw_only=True):
    """Rights of commands and patches, and when the user is asked."""

    approval_policy: AskForApproval = AskForApproval.ON_REQUEST
    granular: QuestionKinds | None = None
    """Which kinds of questions may be asked; None: all that the approval policy has."""
    sandbox_policy: SandboxPolicy = msgspec.field(default_factory=ReadOnly)
    profile: str | None = None
    """None where `sandbox_mode` decided."""
    profiles: ProfileSettings = ProfileSettings()
    workspace_roots: tuple[str, ...] = ()
    """Folders beside the working directory that a client named; they are among the policy's writable roots."""
    environment: ShellEnvironmentPolicy = ShellEnvironmentPolicy()
    editor_files: bool = True
    """Whether patches take unsaved text of the client's editor into account."""
    client_rights: bool = True
    """Whether the client may use the user's own rights: files and commands outside of any sandbox, wider policies,
    programs of its choice. The user's file and the command line decide; what a request says does not count."""
    trusted: bool = False
    """Whether the user trusts the working directory."""


class ClientFence(Struct, frozen=True):
    """The most that a client may be given, where `app_server.client_rights` is false."""

    permissions: PermissionSettings
    """The user's own."""
    folders: tuple[str, ...]
    """Real paths below which a client may choose what commands write to."""


class InstructionSettings(Struct, frozen=True, kw_only=True):
    """Texts that the model is sent besides the conversation; None stands for our own."""

    base: str | None = None
    developer: str | None = None
    mode: TurnMode = TurnMode.DEFAULT
    """In which the conversation goes on; it begins in the default mode."""
    of_mode: str | None = None
    """The client's own for that mode."""
    compact_prompt: str | None = None
    project_doc_max_bytes: int = 32 * 1024
    project_doc_fallback_filenames: tuple[str, ...] = ()


class LoginSettings(Struct, frozen=True, kw_only=True):
    """The logins that the user allows."""

    forced_method: str | None = None
    """`chatgpt` or `api`: the only login method."""
    workspace_id: str | None = None
    chatgpt_url: str | None = None
    """The address of the service of ChatGPT accounts; None for ChatGPT's own."""
    claimed_variables: frozenset[str] = frozenset()
    """Variables that hold a credential of one configured provider or MCP server: what they hold is no login."""


class SettingsWarning(Struct, frozen=True):
    """A problem of the settings that is not an error. `str(warning)` begins with its place."""

    text: str
    """One sentence."""
    key: tuple[str, ...] = ()
    place: FilePosition | None = None
    """None where the file is not the reason."""

    def __str__(self) -> str:
        return f"{self.place}: {self.text}" if self.place else self.text


class SettingsNotices(Struct, frozen=True, kw_only=True):
    """Notices for the user about the settings."""

    warnings: tuple[SettingsWarning, ...] = ()
    old_names: tuple[tuple[str, str], ...] = ()
    """Old names of switches that the settings use, each with the current one, sorted."""


class Config(Discreet, frozen=True, kw_only=True):
    """All settings of a conversation, resolved once when it begins, in one group for each kind of reader."""

    HIDDEN = ("request",)
    home: Path
    cwd: Path
    profile: str | None = None
    model: ModelSettings
    models: ModelTables = ModelTables()
    provider: ProviderConfig
    """Of the conversation, out of `providers`."""
    providers: Mapping[str, ProviderConfig]
    permissions: PermissionSettings = PermissionSettings()
    fence: ClientFence | None = None
    """Holds the client of the conversation; None where it has the user's rights."""
    instructions: InstructionSettings = InstructionSettings()
    features: Features = msgspec.field(default_factory=Features)
    mcp_servers: Mapping[str, McpServerConfig] = msgspec.field(default_factory=lambda: MappingProxyType({}))
    login: LoginSettings = LoginSettings()
    notify: tuple[str, ...] = ()
    sharing: SharingSettings = SharingSettings()
    history: HistoryConfig = HistoryConfig()
    otel: OtelConfig = OtelConfig()
    notices: SettingsNotices = SettingsNotices()
    request: RequestOverrides = msgspec.field(default_factory=lambda: RequestOverrides())
    """What the request said that began the conversation, for reading the settings again."""

    def credential_variables(self) -> frozenset[str]:
        """Return variables that hold credentials of providers and MCP servers; no command inherits them."""
        names = {provider.env_key for provider in self.providers.values()}
        names.update(
            name for provider in self.providers.values() for name in provider.env_http_headers.values()
        )
        for server in self.mcp_servers.values():
            if isinstance(server.transport, McpHttpTransport):
                names.add(server.transport.bearer_token_env_var)
                names.update(server.transport.env_http_headers.values())
        return frozenset(name for name in names if name)

    def configured_values(self) -> Iterator[tuple[str, str, str]]:
        """Yield the values that may be credentials: who has it, its name there, the value."""
        for provider in self.providers.values():
            owner = f"the provider {provider.id}"
            yield owner, "experimental_bearer_token", provider.experimental_bearer_token or ""
            for name, value in (*provider.http_headers.items(), *provider.query_params.items()):
                yield owner, name, value
        for id, server in self.mcp_servers.items():
            transport = server.transport
            given = transport.env if isinstance(transport, McpStdioTransport) else transport.http_headers
            for name, value in given.items():
                yield f"the MCP server {id}", name, value
        for name, value in self.otel.headers.items():
            yield "telemetry", name, value


class CliOverrides(Struct, frozen=True, kw_only=True):
    """Overrides from the command line of a client, for every conversation that it opens."""

    settings: tuple[tuple[str, str], ...] = ()
    """`-c key=value`, split at the first `=`, in the order given."""
    profile: str | None = None
    model: str | None = None
    approval_policy: AskForApproval | None = None
    sandbox_mode: str | None = None
    writable_folders: tuple[str, ...] = ()
    """Commands may write there as in the workspace, beside what the settings name."""
    enable: tuple[str, ...] = ()
    disable: tuple[str, ...] = ()
    above: CliOverrides | None = None
    """Those of the server that the client shares with others, which count more; the stricter one where both name
    rights. None if the command line is that of the server itself.
    """

    @property
    def of_server(self) -> CliOverrides:
        """The command line of the server, which its user chose, without what a client brings to it."""
        return self if self.above is None else self.above


class RequestOverrides(Struct, frozen=True, kw_only=True):
    """Overrides of one `newConversation` or `resumeConversation` request."""

    settings: Mapping[str, Json] = msgspec.field(default_factory=lambda: MappingProxyType({}))
    """The `config` map; its keys may be dotted."""
    model: str | None = None
    model_provider: str | None = None
    profile: str | None = None
    cwd: str | None = None
    approval_policy: AskForApproval | None = None
    granular: QuestionKinds | None = None
    mode: TurnMode = TurnMode.DEFAULT
    mode_instructions: str | None = None
    sandbox: str | None = None
    """A sandbox mode by its wire name."""
    permission_profile: str | None = None
    """The name that the client used for it."""
    workspace_roots: tuple[str, ...] | None = None
    """Folders of the client's workspace, the working directory among them."""
    base_instructions: str | None = None
    developer_instructions: str | None = None
    compact_prompt: str | None = None
    include_apply_patch_tool: bool | None = None


class SettingsPlace(Discreet, frozen=True, kw_only=True):
    """Whose settings these are, and what counts beside the file."""

    HIDDEN = ("environment",)
    home: Path
    cwd: Path
    """The working directory of the client or the server, for conversations that name none."""
    cli: CliOverrides = CliOverrides()
    own_folder: Path | None = None
    """The folder in which the user has started a server that clients share; None if nobody chose one."""
    environment: Mapping[str, str] = NO_ENTRIES
