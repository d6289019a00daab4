"""Which secrets the batch and its workers hold: they are in no task that is stored, and in nothing that comes back."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import UNSET

from app_server.batch.messages import Doing, Result, ResultError, storable
from app_server.client.command_line import InvalidCommandLine
from app_server.core.auth.credentials import read_auth
from app_server.core.config.types import Config
from app_server.masking import MASK, is_secret_name, masked_text
from app_server_protocol.structs import Json, replace

SHORTEST = 8
"""Characters of a value that is looked for: shorter ones are in too many words."""


KEYS = ("OPENAI_API_KEY", "CODEX_API_KEY")
"""Variables that are a login by themselves."""
MAY_HOLD = re.compile(r"headers|query_params|bearer|(^|[\s.{,])env\b")
"""In a setting: parts of it may be credentials, however they are named."""


def without_secrets(doing: Doing) -> Doing:
    """Mask the settings whose names or values look like secrets, or may have some."""
    settings = doing.overrides.settings
    shown = tuple((key, MASK if _may_be_secret(key, value) else value) for key, value in settings)
    return replace(doing, overrides=replace(doing.overrides, settings=shown))


def _may_be_secret(key: str, value: str) -> bool:
    looks_so = is_secret_name(key) or masked_text(value) != value
    return (
        looks_so
        or MAY_HOLD.search(key) is not None
        or (is_table(value) and MAY_HOLD.search(value) is not None)
    )


def is_table(value: str) -> bool:
    """Return whether the value of a setting has settings in it."""
    return value.lstrip().startswith(("{", "["))


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


def held_credentials(config: Config, home: Path, environment: Mapping[str, str]) -> Mapping[str, str]:
    """Return the values of the credentials with which the server itself logs in somewhere, by what holds them."""
    variables = (*config.credential_variables(), *KEYS)
    held = {f"${name}": environment[name] for name in variables if name in environment}
    for owner, name, value in config.configured_values():
        if is_secret_name(name):
            held[f"{name} of {owner}"] = value.removeprefix("Bearer ")
    if (login := read_auth(home)) is not None:
        held["the login's key"] = login.api_key or ""
        if login.tokens is not None:
            held["the login's token"] = login.tokens.access_token
            held["the login's refresh token"] = login.tokens.refresh_token
    return _long_ones(held)


def known_secrets(config: Config, home: Path, environment: Mapping[str, str]) -> Mapping[str, str]:
    """Return the values of the secrets that are known here, by what holds them: the credentials, and what variables
    hold that are named like secrets.
    """
    named = {f"${name}": value for name, value in environment.items() if is_secret_name(name)}
    return _long_ones(named) | dict(held_credentials(config, home, environment))


def _long_ones(held: Mapping[str, str]) -> dict[str, str]:
    return {holder: value for holder, value in held.items() if len(value) >= SHORTEST}


def masked_value(value: Json, secrets: Mapping[str, str]) -> Json:
    """Return a JSON value with these secrets replaced in its texts, the longest ones first: others may be parts of
    them. Names of fields stay as they are.
    """
    match value:
        case str():
            for secret in sorted(secrets.values(), key=len, reverse=True):
                value = value.replace(secret, MASK)
            return value
        case list():
            return [masked_value(each, secrets) for each in value]
        case dict():
            return {key: masked_value(each, secrets) for key, each in value.items()}
        case _:
            return value


def stored_result(result: Result, secrets: Mapping[str, str]) -> Result:
    """Return a result as it can be stored, and without these secrets: its texts are a model's, a provider's or a
    command's.
    """
    said = {
        "final": result.final_message,
        "output": result.output,
        "error": result.error.message if result.error else None,
        "declined": list(result.declined_requests or ()),
    }
    shown: Any = masked_value(storable(said), secrets)
    result.final_message, result.output = shown["final"], shown["output"]
    result.error = ResultError(shown["error"]) if result.error else None
    result.declined_requests = tuple(shown["declined"]) or UNSET
    return result


def masked_lines(content: bytes, secrets: Mapping[str, str]) -> bytes:
    """Return lines of JSON with these secrets replaced in their texts. A line that is none keeps no secret either."""
    if not holders_of(content, secrets):
        return content
    return b"\n".join(_masked_line(line, secrets) for line in content.split(b"\n"))


def _masked_line(line: bytes, secrets: Mapping[str, str]) -> bytes:
    if not holders_of(line, secrets):
        return line
    try:
        return json.dumps(masked_value(json.loads(line), secrets), separators=(",", ":")).encode()
    except (ValueError, RecursionError):
        for form in sorted(_forms(secrets), key=len, reverse=True):
            line = line.replace(form, MASK.encode())
        return line


def holders_of(content: bytes, secrets: Mapping[str, str]) -> Sequence[str]:
    """Return what holds the secrets that a text has in it, as they are or as JSON writes them."""
    return [
        holder for holder in secrets if any(form in content for form in _forms({holder: secrets[holder]}))
    ]


def _forms(secrets: Mapping[str, str]) -> set[bytes]:
    found: set[bytes] = set()
    for value in secrets.values():
        found.add(value.encode(errors="surrogateescape"))
        found.update(
            json.dumps(value, ensure_ascii=ascii_only)[1:-1].encode(errors="surrogateescape")
            for ascii_only in (True, False)
        )
    return found
