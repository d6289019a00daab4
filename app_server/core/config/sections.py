"""The sections of the settings with types of their own: providers (those that need no configuration, too), MCP servers,
environment, telemetry, approval policy.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from app_server.core.config.settings_reader import SettingsReader, derive_error
from app_server.core.config.types import (
    NO_ENTRIES,
    EnvInherit,
    HistoryConfig,
    HistoryPersistence,
    McpApproval,
    McpHttpTransport,
    McpServerConfig,
    McpStdioTransport,
    OtelConfig,
    OtelExporter,
    OtelProtocol,
    ProviderConfig,
    SettingsWarning,
    ShellEnvironmentPolicy,
    WireApi,
)
from protocol.policy import AskForApproval, QuestionKinds

OPENAI = "openai"

MAX_RETRIES = 100
"""Upper limit for configured counts of attempts: a typing error must not keep a turn alive for days."""


def built_in_providers(
    env: Mapping[str, str], openai_base_url: str | None = None
) -> Mapping[str, ProviderConfig]:
    """OpenAI and the two local servers. Environment variables can change their addresses, a setting OpenAI's."""
    local = env.get("CODEX_OSS_BASE_URL") or None
    port = env.get("CODEX_OSS_PORT", "")
    port = port if port.isascii() and port.isdigit() and 0 < int(port[:6]) < 65536 else ""
    return MappingProxyType(
        {
            OPENAI: ProviderConfig(
                id=OPENAI,
                name="OpenAI",
                base_url=openai_base_url or env.get("OPENAI_BASE_URL") or None,
                wire_api=WireApi.RESPONSES,
                env_http_headers=MappingProxyType(
                    {"OpenAI-Organization": "OPENAI_ORGANIZATION", "OpenAI-Project": "OPENAI_PROJECT"}
                ),
                requires_openai_auth=True,
            ),
            "oss": _local_server("oss", local or f"http://localhost:{port or 11434}/v1"),
            "ollama": _local_server("ollama", local or f"http://localhost:{port or 11434}/v1"),
            "lmstudio": _local_server("lmstudio", local or f"http://localhost:{port or 1234}/v1"),
        }
    )


def _local_server(provider_id: str, base_url: str) -> ProviderConfig:
    return ProviderConfig(id=provider_id, name="gpt-oss", base_url=base_url, wire_api=WireApi.CHAT)


STDIO_KEYS = ("command", "args", "env", "env_vars", "cwd")
HTTP_KEYS = ("url", "bearer_token_env_var", "http_headers", "env_http_headers")


def read_providers(
    table: SettingsReader,
    env: Mapping[str, str],
    warnings: list[SettingsWarning],
    openai_base_url: str | None = None,
) -> Mapping[str, ProviderConfig]:
    """The built-in providers and the user's. A built-in one cannot be redefined: its key must go to its own host."""
    built_in = built_in_providers(env, openai_base_url)
    user = {name: _provider(name, entry) for name, entry in table.tables().items()}
    warnings.extend(
        SettingsWarning(
            f"`model_providers.{name}` is ignored: `{name}` is built in and cannot be redefined",
            ("model_providers", name),
        )
        for name in user
        if name in built_in
    )
    return MappingProxyType({**user, **built_in})


def read_mcp_servers(table: SettingsReader) -> Mapping[str, McpServerConfig]:
    return MappingProxyType({name: _mcp_server(name, entry) for name, entry in table.tables().items()})


def read_shell_environment(table: SettingsReader) -> ShellEnvironmentPolicy:
    table.flag("experimental_use_profile")  # of shells that this server does not start
    return ShellEnvironmentPolicy(
        inherit=table.choice("inherit", EnvInherit) or EnvInherit.ALL,
        ignore_default_excludes=table.flag("ignore_default_excludes") or False,
        exclude=table.texts("exclude") or (),
        set=_entries(table.text_map("set")),
        include_only=table.texts("include_only") or (),
    )


def read_history(table: SettingsReader) -> HistoryConfig:
    return HistoryConfig(
        persistence=table.choice("persistence", HistoryPersistence) or HistoryPersistence.SAVE_ALL,
        max_bytes=table.integer("max_bytes"),
    )


def read_otel(table: SettingsReader) -> OtelConfig:
    """`exporter` is a word, or a table with one entry: the kind of exporter and its settings."""
    table.ignore("trace_exporter", "metrics_exporter")
    environment = table.text("environment") or "dev"
    log_user_prompt = table.flag("log_user_prompt") or False
    exporter = table.table_or_text("exporter")
    if not isinstance(exporter, SettingsReader):
        if exporter not in (None, OtelExporter.NONE):
            raise table.invalid("exporter", "must be `none` or a table with an endpoint")
        return OtelConfig(environment=environment, log_user_prompt=log_user_prompt)
    kinds = exporter.keys()
    if len(kinds) != 1 or kinds[0] not in (OtelExporter.OTLP_HTTP, OtelExporter.OTLP_GRPC):
        raise table.invalid("exporter", "must hold either `otlp-http` or `otlp-grpc`")
    settings = exporter.table(kinds[0])
    endpoint = settings.text("endpoint")
    if endpoint is None:
        raise derive_error(f"`{settings.name('endpoint')}` is missing")
    settings.ignore("tls")
    return OtelConfig(
        environment=environment,
        exporter=OtelExporter(kinds[0]),
        endpoint=endpoint,
        headers=_entries(settings.text_map("headers")),
        protocol=settings.choice("protocol", OtelProtocol) or OtelProtocol.BINARY,
        log_user_prompt=log_user_prompt,
    )


def _provider(provider_id: str, table: SettingsReader) -> ProviderConfig:
    name = table.text("name")
    if name is None:
        raise derive_error(f"`{table.name('name')}` is missing")
    return ProviderConfig(
        id=provider_id,
        name=name,
        base_url=table.text("base_url"),
        env_key=table.text("env_key"),
        env_key_instructions=table.text("env_key_instructions"),
        wire_api=table.choice("wire_api", WireApi) or WireApi.CHAT,
        query_params=_entries(table.text_map("query_params")),
        http_headers=_entries(table.text_map("http_headers")),
        env_http_headers=_entries(table.text_map("env_http_headers")),
        request_max_retries=_retries(table.integer("request_max_retries"), 4),
        stream_max_retries=_retries(table.integer("stream_max_retries"), 5),
        stream_idle_timeout_ms=table.integer("stream_idle_timeout_ms", minimum=1) or 300_000,
        requires_openai_auth=table.flag("requires_openai_auth") or False,
        experimental_bearer_token=table.text("experimental_bearer_token"),
    )


def _retries(count: int | None, default: int) -> int:
    return default if count is None else min(count, MAX_RETRIES)


def _mcp_server(name: str, table: SettingsReader) -> McpServerConfig:
    startup_ms = table.integer("startup_timeout_ms", minimum=1)
    enabled = table.flag("enabled")
    enabled_tools = table.texts("enabled_tools")
    return McpServerConfig(
        name=name,
        transport=_transport(table),
        enabled=True if enabled is None else enabled,
        startup_timeout_sec=table.seconds("startup_timeout_sec") or (startup_ms or 10_000) / 1000,
        tool_timeout_sec=table.seconds("tool_timeout_sec") or 60.0,
        enabled_tools=None if enabled_tools is None else frozenset(enabled_tools),
        disabled_tools=frozenset(table.texts("disabled_tools") or ()),
        approval=table.choice("default_tools_approval_mode", McpApproval) or McpApproval.AUTO,
        tool_approvals=_tool_approvals(table.table("tools")),
    )


def _tool_approvals(tools: SettingsReader) -> Mapping[str, McpApproval]:
    modes = {name: entry.choice("approval_mode", McpApproval) for name, entry in tools.tables().items()}
    return MappingProxyType({name: mode for name, mode in modes.items() if mode is not None})


def _transport(table: SettingsReader) -> McpStdioTransport | McpHttpTransport:
    command, url = table.text("command"), table.text("url")
    if table.has("bearer_token"):
        raise table.invalid("bearer_token", "is not supported; name a variable in `bearer_token_env_var`")
    if command is not None:
        _refuse(table, HTTP_KEYS, "a server that is started by `command`")
        return McpStdioTransport(
            command=command,
            args=table.texts("args") or (),
            env=_entries(table.text_map("env")),
            env_vars=table.texts("env_vars") or (),
            cwd=table.text("cwd"),
        )
    if url is not None:
        _refuse(table, STDIO_KEYS, "a server that is reached by `url`")
        return McpHttpTransport(
            url=url,
            bearer_token_env_var=table.text("bearer_token_env_var"),
            http_headers=_entries(table.text_map("http_headers")),
            env_http_headers=_entries(table.text_map("env_http_headers")),
        )
    raise derive_error(f"`{table.path()}` needs a `command` or a `url`")


def _refuse(table: SettingsReader, keys: tuple[str, ...], where: str) -> None:
    for key in keys:
        if table.has(key):
            raise table.invalid(key, f"is not supported for {where}")


def _entries(entries: Mapping[str, str] | None) -> Mapping[str, str]:
    return MappingProxyType(dict(entries)) if entries else NO_ENTRIES


KEY = "approval_policy"
TABLE = "granular"
_REQUIRED = ("sandbox_approval", "rules", "mcp_elicitations")
_OPTIONAL = ("skill_approval", "request_permissions")


def read_approval_policy(table: SettingsReader) -> tuple[AskForApproval | None, QuestionKinds | None]:
    """The policy, None where nothing is set, and the kinds if not all questions are asked. Raises SettingError."""
    value = table.table_or_text(KEY)
    if not isinstance(value, SettingsReader):
        return table.choice(KEY, AskForApproval), None
    if not value.has(TABLE):
        raise table.invalid(KEY, f"must be a word, or a table with `{TABLE}`")
    kinds = value.table(TABLE)
    switches: dict[str, bool] = {}
    for name in _REQUIRED:
        switch = kinds.flag(name)
        if switch is None:
            raise kinds.invalid(name, "must be true or false, and is missing")
        switches[name] = switch
    for name in _OPTIONAL:
        switches[name] = kinds.flag(name) or False
    return AskForApproval.ON_REQUEST, QuestionKinds(**switches)
