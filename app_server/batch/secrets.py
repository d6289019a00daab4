"""Which secrets the batch and its workers hold: they are in no task that is stored, and in nothing that comes back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from app_server.batch.messages import Doing
from app_server.client.command_line import InvalidCommandLine
from app_server.core.auth.credentials import read_auth
from app_server.core.config.types import Config
from app_server.masking import MASK, is_secret_name, masked_text
from app_server_protocol.structs import replace

SHORTEST = 8
"""Characters of a value that is looked for: shorter ones are in too many words."""


def without_secrets(doing: Doing) -> Doing:
    """Mask the settings whose names or values look like secrets."""
    settings = doing.overrides.settings
    shown = tuple((key, MASK if is_secret_name(key) else masked_text(value)) for key, value in settings)
    return replace(doing, overrides=replace(doing.overrides, settings=shown))


def secret_settings(doing: Doing) -> Sequence[str]:
    """Return the keys of settings that are secrets, be they masked or not."""
    return [key for key, value in without_secrets(doing).overrides.settings if MASK in value]


def with_secrets(stored: Doing, given: Mapping[str, str]) -> Doing:
    """Return what a batch does with the settings that are not stored, which are given again. Raises
    InvalidCommandLine.
    """
    secret, settings = secret_settings(stored), stored.overrides.settings
    if missing := [key for key in secret if key not in given]:
        raise InvalidCommandLine(
            f"the setting {missing[0]} is a secret, and not stored: give -c {missing[0]}=… again"
        )
    whole = tuple((key, given[key] if key in secret else value) for key, value in settings)
    return replace(stored, overrides=replace(stored.overrides, settings=whole))


def known_secrets(config: Config, home: Path, environment: Mapping[str, str]) -> Mapping[str, str]:
    """Return the values of the secrets that are known here, by what holds them."""
    named = config.credential_variables()
    held = {f"${name}": environment[name] for name in environment if name in named or is_secret_name(name)}
    for owner, name, value in config.configured_values():
        if is_secret_name(name):
            held[f"{name} of {owner}"] = value.removeprefix("Bearer ")
    if (login := read_auth(home)) is not None:
        held["the login's key"] = login.api_key or ""
        if login.tokens is not None:
            held["the login's token"] = login.tokens.access_token
            held["the login's refresh token"] = login.tokens.refresh_token
    return {holder: value for holder, value in held.items() if len(value) >= SHORTEST}


def masked_bytes(content: bytes, secrets: Mapping[str, str]) -> bytes:
    """Return the content with these secrets replaced, the longest ones first: others may be parts of them."""
    for value in sorted(secrets.values(), key=len, reverse=True):
        content = content.replace(value.encode(errors="surrogateescape"), MASK.encode())
    return content
