"""The providers that need no configuration. A `[model_providers.ID]` table may add others, not replace
these.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from app_server.core.config.types import ProviderConfig, WireApi

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
