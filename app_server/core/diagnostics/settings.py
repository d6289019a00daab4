"""The check of the configuration: whether a conversation could begin with it, and what in it has no effect. Pure.

Here too the credentials in it are removed from the texts of all checks: programs and providers may quote what they were
given.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from app_server.core.auth.credentials import StoredAuth
from app_server.core.config.toml_file import CONFIG_FILE
from app_server.core.config.types import Config, McpStdioTransport
from app_server.core.errors import ConfigError
from app_server.core.exec.command import secret_values
from app_server.masking import MASK, masked_text
from protocol.checks import Check, broken, ok, warning
from protocol.structs import replace


def check_config(home: Path, loaded: Config | ConfigError) -> list[Check]:
    """Return one check per problem. `loaded` is the result of loading the configuration."""
    path = home / CONFIG_FILE
    if isinstance(loaded, ConfigError):
        place = str(loaded.position or path)
        return [
            broken(
                "config", str(loaded), f"correct {place}; docs/configuration-reference.md has every setting"
            )
        ]
    warnings = [
        warning("config", str(each), f"correct or remove it in {path}") for each in loaded.notices.warnings
    ]
    old = [
        warning("config", f"`{name}` is an old name", f"write `[features].{present}` in {path}")
        for name, present in loaded.notices.old_names
    ]
    if warnings or old:
        return [*warnings, *old]
    profile = f", profile {loaded.profile}" if loaded.profile else ""
    return [
        ok("config", f"{path}{profile}" if path.exists() else f"no {path}; every setting has its default")
    ]


SHORTEST = 6
"""A shorter value is no credential, and its replacement would destroy other words."""


class Redaction:
    """Knows the credentials of one home, configuration and environment."""

    def __init__(self, environment: Mapping[str, str], login: StoredAuth | None) -> None:
        self._environment = environment
        self._secrets = set(_long_enough(secret_values(environment)))
        if login is not None:
            tokens = login.tokens
            found = (tokens.id_token, tokens.access_token, tokens.refresh_token) if tokens else ()
            self._secrets.update(_long_enough((login.api_key or "", *found)))

    def learn(self, config: Config) -> None:
        """Remove from now on what this configuration holds, too."""
        named = (self._environment.get(name, "") for name in config.credential_variables())
        self._secrets.update(
            _long_enough(named), _long_enough(value for _, _, value in configured_values(config))
        )

    def apply(self, check: Check) -> Check:
        return replace(check, found=self._shown(check.found), advice=self._shown(check.advice))

    def _shown(self, text: str) -> str:
        for secret in sorted(self._secrets, key=len, reverse=True):
            text = text.replace(secret, MASK)
        return masked_text(text)


def configured_values(config: Config) -> Iterator[tuple[str, str, str]]:
    """Yield the values that may be credentials: who has it, its name there, the value."""
    for provider in config.providers.values():
        owner = f"the provider {provider.id}"
        yield owner, "experimental_bearer_token", provider.experimental_bearer_token or ""
        for name, value in (*provider.http_headers.items(), *provider.query_params.items()):
            yield owner, name, value
    for id, server in config.mcp_servers.items():
        transport = server.transport
        given = transport.env if isinstance(transport, McpStdioTransport) else transport.http_headers
        for name, value in given.items():
            yield f"the MCP server {id}", name, value
    for name, value in config.otel.headers.items():
        yield "telemetry", name, value


def _long_enough(values: Iterable[str]) -> list[str]:
    return [value.strip() for value in values if len(value.strip()) >= SHORTEST]
