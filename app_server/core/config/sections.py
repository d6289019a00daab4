"""The sections of the settings that are more than fields: providers (built-in ones, too), MCP servers, telemetry,
approval policy.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from app_server.core.config.settings_reader import SettingsTable, derive_error
from app_server.core.config.types import (
    OPENAI,
    McpHttpTransport,
    McpServerConfig,
    McpStdioTransport,
    OtelConfig,
    OtelExporter,
    ProviderConfig,
    SettingsWarning,
    WireApi,
)
from protocol.policy import AskForApproval, QuestionKinds
from protocol.structs import replace


def built_in_providers(
    env: Mapping[str, str], openai_base_url: str | None = None
) -> Mapping[str, ProviderConfig]:
    """Return OpenAI and the two local servers. Environment variables can change their addresses, a setting OpenAI's."""
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


def read_providers(
    settings: SettingsTable, env: Mapping[str, str], warnings: list[SettingsWarning]
) -> Mapping[str, ProviderConfig]:
    """Return the built-in providers and the user's, who cannot redefine one: its key must go to its own host."""
    built_in = built_in_providers(env, settings.get("openai_base_url"))
    tables = settings.table("model_providers").tables
    user = {name: table.build(ProviderConfig, id=name) for name, table in tables.items()}
    warnings.extend(
        SettingsWarning(
            f"`model_providers.{name}` is ignored: `{name}` is built in and cannot be redefined",
            ("model_providers", name),
        )
        for name in user
        if name in built_in
    )
    return MappingProxyType({**user, **built_in})


def read_mcp_servers(settings: SettingsTable) -> Mapping[str, McpServerConfig]:
    """Return the configured MCP servers by name."""
    tables = settings.table("mcp_servers").tables
    return MappingProxyType({name: _mcp_server(name, table) for name, table in tables.items()})


def _mcp_server(name: str, table: SettingsTable) -> McpServerConfig:
    server = table.build(
        McpServerConfig,
        name=name,
        transport=_transport(table),
        tool_approvals=MappingProxyType(
            {
                tool: entry.get("approval_mode")
                for tool, entry in table.table("tools").tables.items()
                if "approval_mode" in entry
            }
        ),
    )
    if "startup_timeout_ms" in table and "startup_timeout_sec" not in table:
        return replace(server, startup_timeout_sec=table.get("startup_timeout_ms") / 1000)
    return server


def _transport(table: SettingsTable) -> McpStdioTransport | McpHttpTransport:
    if "command" in table:
        _refuse(table, McpHttpTransport, "a server that is started by `command`")
        return table.build(McpStdioTransport)
    if "url" in table:
        _refuse(table, McpStdioTransport, "a server that is reached by `url`")
        return table.build(McpHttpTransport)
    raise derive_error(f"`{table.path()}` needs a `command` or a `url`")


def _refuse(table: SettingsTable, kind: type, where: str) -> None:
    for key in table.given(kind):
        raise table.invalid(key, f"is not supported for {where}")


def read_otel(settings: SettingsTable) -> OtelConfig:
    """Return where telemetry goes. `exporter` is a word, or a table with one entry: the kind and its settings."""
    table = settings.table("otel")
    if "exporter" not in table.tables:
        return table.build(OtelConfig)
    kinds = table.table("exporter").tables
    if len(kinds) != 1:
        raise table.invalid("exporter", "must hold either `otlp-http` or `otlp-grpc`")
    [(kind, entry)] = kinds.items()
    return entry.build(OtelConfig, exporter=OtelExporter(kind), **table.fields(OtelConfig))


def read_approval_policy(settings: SettingsTable) -> tuple[AskForApproval | None, QuestionKinds | None]:
    """Return the policy, None where nothing is set, and the kinds if not all questions are asked."""
    policy = settings.tables.get("approval_policy")
    if policy is None:
        return settings.get("approval_policy"), None
    if "granular" not in policy.tables:
        raise settings.invalid("approval_policy", "must be a word, or a table with `granular`")
    return AskForApproval.ON_REQUEST, policy.table("granular").build(QuestionKinds)
