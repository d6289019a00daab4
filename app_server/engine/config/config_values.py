"""The configuration of the engine: values with every default applied. `layers` merges files, `resolve` checks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType

import msgspec
from msgspec import Struct

from app_server.engine.config.features import Features
from app_server.engine.config.mcp_server_settings import McpServerConfig
from app_server.engine.config.model_tables import ModelSettings, ModelTables
from app_server.engine.config.profile_settings import ProfileSettings
from app_server.engine.support.engine_errors import FilePosition
from app_server_protocol.encoding import Json
from app_server_protocol.engine.thread_settings import UNCHANGED, SettingsPatch, ThreadSettings, or_unset
from app_server_protocol.policy import PROTECTED_FOLDERS, FolderName
from app_server_protocol.values import Redacted

OPENAI = "openai"
ANTHROPIC = "anthropic"

NO_ENTRIES: Mapping[str, str] = MappingProxyType({})


class WireApi(StrEnum):
    """The HTTP API of a provider."""

    RESPONSES = "responses"
    CHAT = "chat"
    MESSAGES = "messages"


class ProviderConfig(Redacted, frozen=True, kw_only=True):
    """The address of a model provider, and the headers and parameters of its requests."""

    HIDDEN = ("query_params", "http_headers", "experimental_bearer_token")
    id: str
    name: str
    base_url: str | None = None
    env_key: str | None = None
    env_key_instructions: str | None = None
    wire_api: WireApi = WireApi.CHAT
    says_wire: bool = False
    """Whether the user or the built-in table chose the API; else it depends on the provider's host."""
    auth: str | None = None
    """Header that carries the key: `bearer` or `x-api-key`; None for that of the API."""
    cache_ttl: str | None = None
    """Time that the provider caches prompts over the Messages API, `5m` or `1h`; None for its own choice."""
    query_params: Mapping[str, str] = NO_ENTRIES
    http_headers: Mapping[str, str] = NO_ENTRIES
    env_http_headers: Mapping[str, str] = NO_ENTRIES
    request_max_retries: int = 4
    stream_max_retries: int = 5
    stream_idle_timeout_ms: int = 300_000
    requires_openai_auth: bool = False
    quirks: Mapping[str, Json] = MappingProxyType({})
    """The user's values for fields of `engine.model.quirks.Quirks`."""
    experimental_bearer_token: str | None = None


class EnvInherit(StrEnum):
    """The subset of the server's variables that a command inherits."""

    ALL = "all"
    CORE = "core"
    NONE = "none"


class ShellEnvironmentPolicy(Redacted, frozen=True, kw_only=True):
    """Policy by which the environment of a command is derived from the server's."""

    HIDDEN = ("set",)
    inherit: EnvInherit = EnvInherit.ALL
    ignore_default_excludes: bool = False
    exclude: tuple[str, ...] = ()
    set: Mapping[str, str] = NO_ENTRIES
    include_only: tuple[str, ...] = ()


class HistoryPersistence(StrEnum):
    """Choice of whether messages that the user typed are appended to history.jsonl."""

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


class OtelConfig(Redacted, frozen=True, kw_only=True):
    """Destination of telemetry; none by default."""

    HIDDEN = ("headers",)
    environment: str = "dev"
    exporter: OtelExporter = OtelExporter.NONE
    endpoint: str | None = None
    headers: Mapping[str, str] = NO_ENTRIES
    protocol: OtelProtocol = OtelProtocol.BINARY
    log_user_prompt: bool = False


class SharingSettings(Struct, frozen=True, kw_only=True):
    """Settings of a shared server. In a client's own server none of them has an effect."""

    shared: bool = False
    """Whether clients share one server. `server.proxy.sharing` reads it before anything else is loaded."""
    idle_exit_minutes: float = 30
    """Time until the server exits if it has no client and no work, in minutes; 0 for never."""
    drain_seconds: float = 60
    """Maximum time that turns may continue once the server is to stop, in seconds."""
    unwatched_minutes: float = 60
    """Maximum time that a turn continues if no client follows it, in minutes; with 0 it does not continue."""
    question_hours: float = 24
    """Maximum time that a question waits for a client that could answer it, in hours."""


class PermissionSettings(Struct, frozen=True, kw_only=True):
    """Rights of commands, patches and clients, as far as they do not change with the turns."""

    profiles: ProfileSettings = ProfileSettings()
    environment: ShellEnvironmentPolicy = ShellEnvironmentPolicy()
    editor_files: bool = True
    """Whether patches take unsaved text of the client's editor into account."""
    client_rights: bool = True
    """Whether the client may use the user's own rights: files and commands outside of any sandbox, wider policies,
    programs of its choice. The user's file and the command line set it; a request cannot.
    """
    trusted: bool = False
    """Whether the user trusts the working directory."""
    protected_folders: tuple[FolderName, ...] = PROTECTED_FOLDERS
    """Names in writable roots that commands and patches may never write."""


class ClientFence(Struct, frozen=True):
    """The maximum rights of a client, if `app_server.client_rights` is false."""

    thread: ThreadSettings
    """Settings of a thread by the user's own configuration."""
    folders: tuple[str, ...]
    """Real paths of folders. A client may choose writable folders of commands only below these."""


class InstructionSettings(Struct, frozen=True, kw_only=True):
    """Texts that the model is sent besides the conversation. None stands for the text of this server."""

    base: str | None = None
    developer: str | None = None
    compact_prompt: str | None = None
    project_doc_max_bytes: int = 32 * 1024
    project_doc_fallback_filenames: tuple[str, ...] = ()


class LoginSettings(Struct, frozen=True, kw_only=True):
    """Restrictions of logins, and the service of ChatGPT accounts."""

    forced_method: str | None = None
    """The only allowed login method, `chatgpt` or `api`; None if both are allowed."""
    workspace_id: str | None = None
    chatgpt_url: str | None = None
    """Address of the service of ChatGPT accounts; None for ChatGPT's own."""
    claimed_variables: frozenset[str] = frozenset()
    """Environment variables that hold a credential of one configured provider or MCP server. Their values are no
    logins.
    """


class SettingsWarning(Struct, frozen=True):
    """A problem of the settings that is not an error. `str(warning)` begins with its position."""

    text: str
    """Text of the warning, one sentence."""
    key: tuple[str, ...] = ()
    place: FilePosition | None = None
    """Position in the user's file; None if the file is not the cause."""

    def __str__(self) -> str:
        return f"{self.place}: {self.text}" if self.place else self.text


class SettingsNotices(Struct, frozen=True, kw_only=True):
    """Notices for the user about the settings."""

    warnings: tuple[SettingsWarning, ...] = ()
    old_names: tuple[tuple[str, str], ...] = ()
    """Old names of switches that the settings use, each with the current one, sorted."""


class Config(Redacted, frozen=True, kw_only=True):
    """All settings of a conversation, resolved once when it begins. They are grouped by the parts of the engine that
    read them.
    """

    HIDDEN = ("request", "hook_overrides")
    home: Path
    thread: ThreadSettings
    """Settings that the first turn starts from."""
    profile: str | None = None
    model: ModelSettings
    models: ModelTables = ModelTables()
    provider: ProviderConfig
    """Provider of the conversation, one of `providers`."""
    providers: Mapping[str, ProviderConfig]
    permissions: PermissionSettings = PermissionSettings()
    fence: ClientFence | None = None
    """Maximum rights of the client of the conversation; None if the client has the user's rights."""
    instructions: InstructionSettings = InstructionSettings()
    features: Features = msgspec.field(default_factory=Features)
    mcp_servers: Mapping[str, McpServerConfig] = msgspec.field(default_factory=lambda: MappingProxyType({}))
    login: LoginSettings = LoginSettings()
    notify: tuple[str, ...] = ()
    sharing: SharingSettings = SharingSettings()
    history: HistoryConfig = HistoryConfig()
    otel: OtelConfig = OtelConfig()
    notices: SettingsNotices = SettingsNotices()
    hook_overrides: Mapping[str, Json] = msgspec.field(default_factory=lambda: MappingProxyType({}))
    """The tables `hooks`, `features` and `projects` as layers above the user's file set them. Hooks are read again for
    each turn, with the file as it is then.
    """
    request: RequestOverrides = msgspec.field(default_factory=lambda: RequestOverrides())
    """Overrides of the request that began the conversation, for reading the settings again."""

    @property
    def cwd(self) -> Path:
        return Path(self.thread.cwd)

    def credential_variables(self) -> frozenset[str]:
        """Return the environment variables with credentials of providers and MCP servers. No command inherits them."""
        names = {provider.env_key for provider in self.providers.values()}
        names.update(
            name for provider in self.providers.values() for name in provider.env_http_headers.values()
        )
        for server in self.mcp_servers.values():
            names.update(server.transport.credential_variables())
        return frozenset(name for name in names if name)

    def configured_values(self) -> Iterator[tuple[str, str, str]]:
        """Yield the configured values that may be credentials: the owner, the name of the value there, and the
        value.
        """
        for provider in self.providers.values():
            owner = f"the provider {provider.id}"
            yield owner, "experimental_bearer_token", provider.experimental_bearer_token or ""
            for name, value in (*provider.http_headers.items(), *provider.query_params.items()):
                yield owner, name, value
        for id, server in self.mcp_servers.items():
            for name, value in server.transport.credentials():
                yield f"the MCP server {id}", name, value
        for name, value in self.otel.headers.items():
            yield "telemetry", name, value


class CliOverrides(Struct, frozen=True, kw_only=True):
    """Overrides from the command line of a client, for every conversation that it opens."""

    settings: tuple[tuple[str, str], ...] = ()
    """Values of `-c key=value`, split at the first `=`, in the order of the command line; then those of the options
    that have a name of their own, such as `--model`.
    """
    profile: str | None = None
    writable_folders: tuple[str, ...] = ()
    """Folders to which commands may write as in the workspace, beside those of the settings."""
    enable: tuple[str, ...] = ()
    disable: tuple[str, ...] = ()
    above: CliOverrides | None = None
    """Overrides of the server that the client shares with others. They take precedence, except for rights: if both set
    rights, the stricter one counts. None if the command line is that of the server itself.
    """

    @property
    def of_server(self) -> CliOverrides:
        """The command line of the server, which its user chose, without the overrides of a client."""
        return self if self.above is None else self.above


class RequestOverrides(Struct, frozen=True, kw_only=True):
    """Overrides of one request that opens a conversation: settings of the thread, and others by name."""

    patch: SettingsPatch = UNCHANGED
    """Settings of the thread. A permission profile is named without its sandbox policy, which the settings give."""
    settings: Mapping[str, Json] = msgspec.field(default_factory=lambda: MappingProxyType({}))
    """The `config` map of the request; its keys may be dotted."""
    sandbox: str | None = None
    """Sandbox mode, by its wire name; the settings complete it to a policy."""
    model_provider: str | None = None
    profile: str | None = None
    base_instructions: str | None = None
    developer_instructions: str | None = None
    compact_prompt: str | None = None
    include_apply_patch_tool: bool | None = None

    @classmethod
    def in_folder(cls, cwd: str | None) -> RequestOverrides:
        """Return the overrides of a request that names a working directory or, if it is None, nothing."""
        return cls(patch=SettingsPatch(cwd=or_unset(cwd)))


class SettingsSource(Redacted, frozen=True, kw_only=True):
    """The owner of settings: the home with the user's file, and what overrides or completes the file."""

    HIDDEN = ("environment",)
    home: Path
    cwd: Path
    """Working directory of the client or the server, for conversations whose request names none."""
    cli: CliOverrides = CliOverrides()
    own_folder: Path | None = None
    """Folder in which the user started a server that clients share; None if the user chose none."""
    environment: Mapping[str, str] = NO_ENTRIES
