"""Which secrets the batch and its workers hold: they are in no task that is stored, and in nothing that comes back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from app_server.core.auth.home_login import read_auth
from app_server.core.config.types import CliOverrides, Config
from app_server.masking import MASK, is_secret_name, masked_text
from protocol.structs import replace

SHORTEST = 8
"""Characters of a value that is looked for: shorter ones are in too many words."""


def without_secrets(overrides: CliOverrides) -> CliOverrides:
    """Mask the settings whose names or values look like secrets."""
    pairs = [(key, MASK if is_secret_name(key) else masked_text(value)) for key, value in overrides.settings]
    return replace(overrides, settings=tuple(pairs))


def secret_settings(overrides: CliOverrides) -> Sequence[str]:
    """Return the keys of settings that are secrets."""
    pairs = zip(overrides.settings, without_secrets(overrides).settings, strict=True)
    return [key for (key, value), (_, shown) in pairs if value != shown]


def known_secrets(config: Config, home: Path, environment: Mapping[str, str]) -> Mapping[str, str]:
    """Return the values of the secrets that are known here, by what holds them."""
    named = config.credential_variables()
    held = {f"${name}": environment[name] for name in environment if name in named or is_secret_name(name)}
    for provider in config.providers.values():
        held[f"the token of the provider {provider.id}"] = provider.experimental_bearer_token or ""
        for name, value in (*provider.http_headers.items(), *provider.query_params.items()):
            if is_secret_name(name):
                held[f"{name} of the provider {provider.id}"] = value.removeprefix("Bearer ")
    if (login := read_auth(home)) is not None:
        held["the login's key"] = login.api_key or ""
        if login.tokens is not None:
            held["the login's token"] = login.tokens.access_token
            held["the login's refresh token"] = login.tokens.refresh_token
    return {holder: value for holder, value in held.items() if len(value) >= SHORTEST}


def masked_bytes(content: bytes, secrets: Mapping[str, str]) -> bytes:
    """Return the content with these secrets replaced."""
    for value in secrets.values():
        content = content.replace(value.encode(errors="surrogateescape"), MASK.encode())
    return content
