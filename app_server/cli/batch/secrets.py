"""The secrets of the batch and its workers. They are in no stored task, and in no data that a worker returns."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import UNSET

from app_server.cli.batch.worker_messages import Doing, Result, ResultError, storable
from app_server.client.command_line import InvalidCommandLine
from app_server.engine.auth.credentials import read_auth
from app_server.engine.config.config_values import Config
from app_server.engine.support.redaction import MASK, is_secret_name, masked_text
from app_server_protocol.encoding import Json
from app_server_protocol.values import replace

SHORTEST = 8
"""Minimum length of a value that is searched for, in characters: shorter ones occur in too many words."""


KEYS = ("OPENAI_API_KEY", "CODEX_API_KEY")
"""Names of variables that are a login by themselves."""
MAY_HOLD = re.compile(r"headers|query_params|bearer|(^|[\s.{,])env\b")
"""Pattern in the name or value of a setting, of which parts may be credentials, whatever their names are."""


def without_secrets(doing: Doing) -> Doing:
    """Return the settings with masked values where their names or values look like secrets, or may contain some."""
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
    """Return whether the value of a setting is a table or a list of settings."""
    return value.lstrip().startswith(("{", "["))


def secret_settings(doing: Doing) -> Sequence[str]:
    """Return the keys of settings that are secrets, whether or not they are masked."""
    return [key for key, value in without_secrets(doing).overrides.settings if MASK in value]


def with_secrets(stored: Doing, given: Mapping[str, str]) -> Doing:
    """Return the settings of a batch with the secret ones, which are not stored and have to be given again. Raises
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
    """Return the values of the credentials with which the server itself logs in, by the names of their holders."""
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
    """Return the values of the secrets that are known here, by the names of their holders: the credentials, and the
    values of variables with names like secrets.
    """
    named = {f"${name}": value for name, value in environment.items() if is_secret_name(name)}
    return _long_ones(named) | dict(held_credentials(config, home, environment))


def _long_ones(held: Mapping[str, str]) -> dict[str, str]:
    return {holder: value for holder, value in held.items() if len(value) >= SHORTEST}


def masked_value(value: Json, secrets: Mapping[str, str]) -> Json:
    """Return a JSON value with these secrets replaced in its texts. The longest secret is replaced first, because
    others may be parts of it. Names of fields are not changed.
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
    """Return a result that can be stored, without these secrets: its texts come from a model, a provider or a
    command.
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
    """Return lines of JSON with these secrets replaced in their texts. Lines that are not JSON contain no secret
    either.
    """
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
    """Return the names of the holders of all secrets that are in a text, as they are or as JSON writes them."""
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
