"""The table of all settings, each defined once: its key, the kind of its value, its description, and the field that
gets it.

The reader (`settings_reader`), the reference and the JSON Schema of the file (`settings_reference`) are made from this
table. The default of a setting is that of its field. Words in capitals stand for names that users choose.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from app_server.engine.config import config_values
from app_server.engine.config.features import FEATURES, LEGACY_TOGGLES, TOOL_SWITCHES
from app_server.engine.config.hook_settings import HOOK_SETTINGS, HOOKS
from app_server.engine.config.mcp_server_settings import MCP_SERVERS
from app_server.engine.config.model_tables import MODEL_KEYS, SIZES, ModelSettings
from app_server.engine.config.quirk_settings import QUIRKS
from app_server.engine.config.setting_types import (
    AMOUNT,
    ANYTHING,
    FILE_NAMES,
    FILLED,
    FLAG,
    PROFILES,
    TEXT,
    TEXT_MAP,
    TEXTS,
    Kind,
    Setting,
    SettingsPart,
    WrongValue,
    choice,
    integer,
    one_of,
    refused,
    word,
)
from app_server_protocol.encoding import Json
from app_server_protocol.engine.thread_settings import ThreadSettings
from app_server_protocol.policy import (
    MAX_EFFORT_LENGTH,
    AskForApproval,
    QuestionKinds,
    ReasoningSummary,
    SandboxMode,
    Verbosity,
    WorkspaceWrite,
)

ABOUT_CLIENTS = "app_server"
"""Name of the table of settings about the rights of clients. A client's request cannot change it."""

MAX_RETRIES = 100
"""Maximum of configured numbers of attempts: a typing error must not keep a turn alive for days."""

NO_EFFECT = "Without effect"
"""Title of settings that only other programs use. A value of a wrong kind is still an error."""

SWITCHES = "Switches"
"""Title of the switches of features, under all their names. Their descriptions are in `features`."""

OF_OTHERS = "Of others"
"""Title of known settings without effect here: of terminals, later versions, other programs that share the file."""


SWITCH = Setting(FLAG, to=None)


def _no_exporter(value: Json) -> config_values.OtelExporter:
    if value != "none":
        raise WrongValue("must be `none` or a table with an endpoint")
    return config_values.OtelExporter.NONE


SEARCH_MODE = Kind("`live`, `cached` or `disabled`", {"type": "string"}, lambda value: value)

NO_EXPORTER = Kind("`none`", {"enum": ["none"]}, _no_exporter)


def _names(kind: Kind, names: str) -> dict[str, Setting]:
    return {name: Setting(kind, to=None) for name in names.split()}


SETTINGS: Mapping[SettingsPart, Mapping[str, Setting]] = {
    SettingsPart("Model", "", ThreadSettings, open=True): {
        "model": Setting(FILLED, "the model of new conversations"),
        "model_reasoning_effort": Setting(
            word(MAX_EFFORT_LENGTH),
            "how long the model thinks: `none` `minimal` `low` `medium` `high`, or another word that the model knows;"
            " unset: as the model does by itself",
            "effort",
        ),
        "model_reasoning_summary": Setting(
            choice(ReasoningSummary),
            "how much of its reasoning the model sums up; unset: as usual for the model",
            "summary",
        ),
        "service_tier": Setting(
            FILLED,
            "the speed or price class of requests, of those that the model lists (`fast` means `priority`); not sent if"
            " the model has none of that name",
        ),
    },
    SettingsPart("Model", "", ModelSettings, open=True): {
        "review_model": Setting(FILLED, "the model of reviews; unset: the conversation's"),
        "model_provider": Setting(
            TEXT,
            "a table of `[model_providers]`, or `openai`, `ollama` (also `oss`), `lmstudio`",
            None,
            default=config_values.OPENAI,
        ),
        "model_verbosity": Setting(
            choice(Verbosity), "how much the model writes; unset: as the model does by itself", "verbosity"
        ),
        "model_context_window": Setting(
            integer(1), "tokens; unset: known for the model, or else 272,000 are assumed", "context_window"
        ),
        "model_auto_compact_token_limit": Setting(
            integer(1),
            "tokens at which the history is compacted; unset: nine tenths of the window, four fifths or less of one"
            " below 24,000",
            "auto_compact_token_limit",
        ),
        **SIZES,
        "model_supports_reasoning_summaries": Setting(
            FLAG,
            "asks for summaries of reasoning; unset: known for the model",
            "supports_reasoning_summaries",
        ),
        "show_raw_agent_reasoning": Setting(
            FLAG,
            "the conversation API, too, gives its clients the raw reasoning of the model",
            "show_raw_reasoning",
        ),
        "model_max_output_tokens": Setting(
            integer(1), "the most tokens of one answer; unset: as the provider does", "max_output_tokens"
        ),
        "plan_mode_reasoning_effort": Setting(
            word(MAX_EFFORT_LENGTH), "`model_reasoning_effort` of turns in plan mode", "plan_effort"
        ),
    },
    SettingsPart("Model", ""): {
        "model_catalog_json": Setting(
            TEXT,
            'a JSON file `{"models": […]}` whose rows replace those of this server; relative to the home',
            None,
        ),
    },
    SettingsPart("Models", "models.NAME", open=True): MODEL_KEYS,
    SettingsPart("Permissions", "", ThreadSettings): {
        "approval_policy": Setting(choice(AskForApproval), "when the user is asked"),
    },
    SettingsPart("Permissions", "approval_policy.granular", QuestionKinds): {
        "sandbox_approval": Setting(
            FLAG, "questions about what needs more than the sandbox gives; required", required=True
        ),
        "rules": Setting(FLAG, "questions that rules want; required", required=True),
        "mcp_elicitations": Setting(FLAG, "questions of MCP servers; required", required=True),
        "skill_approval": Setting(FLAG, "no such questions exist here"),
        "request_permissions": Setting(FLAG, "no such questions exist here"),
    },
    SettingsPart("Permissions", ""): {
        "sandbox_mode": Setting(
            choice(SandboxMode),
            "what commands may do; the default in trusted projects is `workspace-write`",
            None,
            default=SandboxMode.READ_ONLY,
        ),
        "default_permissions": Setting(
            TEXT,
            "a permission profile: a table of `[permissions]`, or `:read-only`, `:workspace`, `:danger-full-access`;"
            " counts more than `sandbox_mode` beside it",
            None,
        ),
        "permissions": Setting(PROFILES, "permission profiles by name: [docs/sandbox.md](sandbox.md)", None),
    },
    SettingsPart("Permissions", "sandbox_workspace_write", WorkspaceWrite): {
        "writable_roots": Setting(
            TEXTS,
            "absolute paths of folders that may be written besides the working directory; `~/` is expanded",
        ),
        "network_access": Setting(FLAG, "commands may use the network"),
        "exclude_tmpdir_env_var": Setting(FLAG, "`$TMPDIR` may not be written"),
        "exclude_slash_tmp": Setting(FLAG, "`/tmp` may not be written"),
    },
    SettingsPart("Permissions", "projects.PATH"): {
        "trust_level": Setting(TEXT, "`trusted` or `untrusted`; holds for the whole repository", None),
    },
    SettingsPart("Permissions", "shell_environment_policy", config_values.ShellEnvironmentPolicy): {
        "inherit": Setting(
            choice(config_values.EnvInherit),
            "which variables of the server commands start with; `core`: HOME, PATH and the like",
        ),
        "ignore_default_excludes": Setting(FLAG, "keeps variables whose names or values look like secrets"),
        "exclude": Setting(TEXTS, "names of variables that are removed; `*` and `?` are wildcards"),
        "include_only": Setting(TEXTS, "names of the only variables that are kept; wildcards as above"),
        "set": Setting(TEXT_MAP, "variables that commands get"),
    },
    SettingsPart("Instructions", "", config_values.InstructionSettings, open=True): {
        "developer_instructions": Setting(
            TEXT, "a text for the model, after its base instructions", "developer"
        ),
        "compact_prompt": Setting(TEXT, "how the model is asked to sum up the history", None),
        "project_doc_max_bytes": Setting(integer(), "so much of a project's `AGENTS.md` files is read"),
    },
    SettingsPart("Instructions", "", config_values.InstructionSettings): {
        "project_doc_fallback_filenames": Setting(
            FILE_NAMES,
            "names to look for where there is no `AGENTS.md`, also with folders (`.github/instructions.md`)",
        ),
        "model_instructions_file": Setting(
            TEXT, "a file that replaces the base instructions; relative to the home", None
        ),
        "experimental_instructions_file": Setting(TEXT, "an older name of `model_instructions_file`", None),
        "experimental_compact_prompt_file": Setting(
            TEXT, "a file with the text of `compact_prompt`; relative to the home", None
        ),
    },
    SettingsPart("Providers", ""): {
        "openai_base_url": Setting(TEXT, "replaces the address of the provider `openai`", None),
    },
    SettingsPart("Providers", "model_providers.NAME", config_values.ProviderConfig): {
        "name": Setting(TEXT, "required; for people", required=True),
        "base_url": Setting(TEXT, "the address up to and with `/v1` or the like"),
        "wire": Setting(
            choice(config_values.WireApi),
            "the API that it speaks: Responses, Chat Completions or Anthropic's Messages; unset: as is known of the"
            " provider's host, or else Chat Completions",
            None,
        ),
        "wire_api": Setting(
            choice(config_values.WireApi),
            "the same, by a name that codex reads, too; it refuses `chat` from 0.169 on, and `messages`",
        ),
        "auth": Setting(
            one_of(("bearer", "x-api-key")),
            "the header that carries the key: `authorization` or `x-api-key`; unset: as the API has it",
        ),
        "cache_ttl": Setting(
            one_of(("5m", "1h")),
            "of Claude: how long the provider keeps what it caches; unset: 5 minutes",
        ),
        "env_key": Setting(TEXT, "the variable of the server's environment that holds the key"),
        "env_key_instructions": Setting(TEXT, "what is shown to the user where that variable is not set"),
        "experimental_bearer_token": Setting(TEXT, "the key itself; better name a variable"),
        "query_params": Setting(TEXT_MAP, "parameters of every address, such as `api-version`"),
        "http_headers": Setting(TEXT_MAP, "headers of every request"),
        "env_http_headers": Setting(TEXT_MAP, "headers whose values are in these variables"),
        "request_max_retries": Setting(
            integer(counted=MAX_RETRIES), "further attempts of a request that failed; at most 100 count"
        ),
        "stream_max_retries": Setting(
            integer(counted=MAX_RETRIES), "further attempts of an answer that broke off; at most 100 count"
        ),
        "stream_idle_timeout_ms": Setting(integer(1), "the longest pause of an answer"),
        "requires_openai_auth": Setting(FLAG, "requests carry the user's OpenAI login"),
    },
    SettingsPart("Providers", "model_providers.NAME.quirks", open=True): QUIRKS,
    **MCP_SERVERS,
    SettingsPart("Hooks", HOOKS): HOOK_SETTINGS,
    SettingsPart("Clients", "app_server", config_values.PermissionSettings): {
        "client_rights": Setting(
            FLAG,
            "`false`: a client gets at most what the rest of the configuration gives; no request changes it",
        ),
        "editor_files": Setting(FLAG, "`false`: patches take no unsaved text of the editor into account"),
    },
    SettingsPart("Shared server", "app_server", config_values.SharingSettings): {
        "shared": Setting(
            FLAG,
            "`true`: `app-server` and `app-server acp` are proxies of one server for all clients; a project's file"
            " cannot say so",
        ),
        "idle_exit_minutes": Setting(
            AMOUNT, "so long it stays without a client and without work; 0: for ever"
        ),
        "drain_seconds": Setting(AMOUNT, "so long turns may go on when it is stopped"),
        "unwatched_minutes": Setting(AMOUNT, "so long a turn goes on that no client follows; 0: not at all"),
        "question_hours": Setting(
            AMOUNT, "so long a question waits for a client; then it counts as declined"
        ),
    },
    SettingsPart("Login", "", config_values.LoginSettings): {
        "forced_login_method": Setting(one_of(("chatgpt", "api")), "the only way to log in", "forced_method"),
        "forced_chatgpt_workspace_id": Setting(
            TEXT, "the only workspace whose logins are accepted", "workspace_id"
        ),
        "chatgpt_base_url": Setting(
            TEXT,
            "the service that says how much of a ChatGPT account is used up; unset: that of ChatGPT",
            "chatgpt_url",
        ),
    },
    SettingsPart("History, notifications, telemetry", "history", config_values.HistoryConfig): {
        "persistence": Setting(
            choice(config_values.HistoryPersistence), "whether front ends may add messages to `history.jsonl`"
        ),
        "max_bytes": Setting(integer(), "beyond it the oldest messages are removed; unset: never"),
    },
    SettingsPart("History, notifications, telemetry", "", config_values.Config): {
        "notify": Setting(
            TEXTS,
            "a program with arguments that is started after each turn,"
            " with a JSON object as its last argument",
        ),
    },
    SettingsPart("History, notifications, telemetry", "otel", config_values.OtelConfig): {
        "environment": Setting(TEXT, "the name of the deployment in events"),
        "log_user_prompt": Setting(FLAG, "events have the user's words"),
        "exporter": Setting(NO_EXPORTER, "`none`, or a table that says where events are sent"),
    },
    SettingsPart("History, notifications, telemetry", "otel.exporter.otlp-http", config_values.OtelConfig): {
        "endpoint": Setting(TEXT, "where events are sent over HTTP", required=True),
        "headers": Setting(TEXT_MAP, "headers of these requests"),
        "protocol": Setting(choice(config_values.OtelProtocol), "their encoding"),
    },
    SettingsPart("History, notifications, telemetry", "otel.exporter.otlp-grpc", config_values.OtelConfig): {
        "endpoint": Setting(TEXT, "where events are sent over gRPC", required=True),
        "headers": Setting(TEXT_MAP, "metadata of these requests"),
    },
    SettingsPart("Searches", ""): {
        "web_search": Setting(
            SEARCH_MODE,
            "`live` switches the feature `web_search_request` on, `disabled` off; other words switch nothing",
            None,
        ),
    },
    SettingsPart(SWITCHES, ""): dict.fromkeys(
        (*LEGACY_TOGGLES, *(f"tools_{key}" for key in TOOL_SWITCHES)), SWITCH
    ),
    SettingsPart(SWITCHES, "tools"): dict.fromkeys(TOOL_SWITCHES, SWITCH),
    SettingsPart(SWITCHES, "features"): dict.fromkeys(FEATURES, SWITCH),
    SettingsPart(NO_EFFECT, "", ModelSettings, open=True): {
        **_names(FLAG, "hide_agent_reasoning"),
        **_names(TEXT, "model_reasoning_summary_format"),
    },
    SettingsPart(NO_EFFECT, "shell_environment_policy"): _names(FLAG, "experimental_use_profile"),
    SettingsPart(NO_EFFECT, "otel.exporter.otlp-grpc", config_values.OtelConfig): {
        "protocol": Setting(choice(config_values.OtelProtocol))
    },
    SettingsPart(OF_OTHERS, "", open=True): _names(ANYTHING, "personality instructions"),
    SettingsPart(OF_OTHERS, ""): _names(
        ANYTHING,
        "profile profiles tui file_opener disable_paste_burst notice oss_provider cli_auth_credentials_store"
        " mcp_oauth_credentials_store windows_wsl_setup_acknowledged check_for_update_on_startup"
        " disable_response_storage experimental_resume analytics feedback suppress_unstable_features_warning"
        " log_dir sqlite_home skills apps plugins ghost_snapshot project_root_markers"
        " background_terminal_max_timeout model_catalog_url commit_attribution mcp_oauth_callback_port",
    ),
    SettingsPart(OF_OTHERS, "model_providers.NAME"): _names(
        ANYTHING, "supports_websockets websocket_connect_timeout_ms aws gateway_oauth"
    ),
    SettingsPart(OF_OTHERS, "mcp_servers.NAME"): {
        "bearer_token": Setting(
            refused("is not supported; name a variable in `bearer_token_env_var`"), to=None
        )
    },
    SettingsPart(OF_OTHERS, "otel"): _names(ANYTHING, "trace_exporter metrics_exporter"),
    SettingsPart(OF_OTHERS, "otel.exporter.otlp-http"): _names(ANYTHING, "tls"),
    SettingsPart(OF_OTHERS, "otel.exporter.otlp-grpc"): _names(ANYTHING, "tls"),
}


def every_setting() -> Iterator[tuple[str, Setting, SettingsPart]]:
    """Yield each setting with its key, with dots, and the part that it belongs to."""
    for part, settings in SETTINGS.items():
        for name, setting in settings.items():
            yield f"{part.table}.{name}".removeprefix("."), setting, part
