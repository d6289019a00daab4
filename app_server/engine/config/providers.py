"""Built-in model providers, and the user's tables, which change them or add others.

A table may change a built-in local server. The API key of OpenAI or Anthropic is sent only to its own host.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from app_server.engine.config import config_values
from app_server.engine.config.settings_reader import SettingsTable
from app_server_protocol.values import replace

ANTHROPIC_URL = "https://api.anthropic.com/v1"

LOCAL_PORTS = {"oss": 11434, "ollama": 11434, "lmstudio": 1234}
"""Ports of the local servers, by their ids."""


def built_in_providers(
    env: Mapping[str, str], openai_base_url: str | None = None
) -> Mapping[str, config_values.ProviderConfig]:
    """Return OpenAI, Anthropic and the local servers. Environment variables can change the address of each except
    Anthropic, and a setting that of OpenAI.
    """
    local = env.get("CODEX_OSS_BASE_URL")
    port = env.get("CODEX_OSS_PORT", "")
    port = port if port.isascii() and port.isdigit() and 0 < int(port[:6]) < 65536 else ""
    openai = config_values.ProviderConfig(
        id=config_values.OPENAI,
        name="OpenAI",
        base_url=openai_base_url or env.get("OPENAI_BASE_URL") or None,
        wire_api=config_values.WireApi.RESPONSES,
        says_wire=True,
        env_http_headers=MappingProxyType(
            {"OpenAI-Organization": "OPENAI_ORGANIZATION", "OpenAI-Project": "OPENAI_PROJECT"}
        ),
        requires_openai_auth=True,
    )
    anthropic = config_values.ProviderConfig(
        id=config_values.ANTHROPIC,
        name="Anthropic",
        base_url=ANTHROPIC_URL,
        env_key="ANTHROPIC_API_KEY",
        env_key_instructions="Create one at https://platform.claude.com/settings/keys.",
        wire_api=config_values.WireApi.MESSAGES,
        says_wire=True,
    )
    local_servers = {
        id: config_values.ProviderConfig(
            id=id, name="gpt-oss", base_url=local or f"http://localhost:{port or usual}/v1"
        )
        for id, usual in LOCAL_PORTS.items()
    }
    return MappingProxyType(
        {config_values.OPENAI: openai, config_values.ANTHROPIC: anthropic, **local_servers}
    )


def read_providers(
    settings: SettingsTable, env: Mapping[str, str], warnings: list[config_values.SettingsWarning]
) -> Mapping[str, config_values.ProviderConfig]:
    """Return the built-in providers and the user's. A user's table cannot redefine OpenAI or Anthropic: their keys must
    be sent only to their own hosts.
    """
    built_in = built_in_providers(env, settings.get("openai_base_url"))
    tables = settings.table("model_providers").tables
    found: dict[str, config_values.ProviderConfig] = {}
    for name, table in tables.items():
        if name not in built_in:
            found[name] = config_values.ProviderConfig(id=name, **_provider_fields(table))
    for name, provider in built_in.items():
        changed = _provider_fields(tables[name], partial=True) if name in tables else {}
        has_key = name in (config_values.OPENAI, config_values.ANTHROPIC)
        if has_key and (fixed := [key for key in changed if key not in OPEN_FIELDS]):
            what = ", ".join(f"`{key}`" for key in fixed)
            text = f"{what} of `model_providers.{name}` is ignored: `{name}` is built in, and its key goes to its host"
            warnings.append(config_values.SettingsWarning(text, ("model_providers", name)))
            changed = {key: value for key, value in changed.items() if key in OPEN_FIELDS}
        found[name] = replace(provider, **changed) if changed else provider
    return MappingProxyType(found)


OPEN_FIELDS = frozenset(
    {
        *("request_max_retries", "stream_max_retries", "stream_idle_timeout_ms", "quirks"),
        *("http_headers", "env_http_headers", "query_params", "cache_ttl"),
    }
)
"""Settings of a built-in provider that cannot change where its key is sent."""


def _provider_fields(table: SettingsTable, *, partial: bool = False) -> dict[str, Any]:
    """Return the fields of a provider that a table sets. `partial`: the table changes a built-in provider."""
    fields = table.fields(config_values.ProviderConfig, partial=partial)
    if (wire := table.get("wire") or fields.get("wire_api")) is not None:
        fields |= {"wire_api": wire, "says_wire": True}
    if (quirks := table.tables.get("quirks")) is not None:
        fields["quirks"] = MappingProxyType(dict(quirks.values))
    return fields
