"""Settings without their credentials, for clients to show; and the way back, for clients that write what they read.

What holds a credential is recognised by its table (`http_headers`), or as in every message and text. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

from app_server.core.errors import InvalidSettings
from app_server.masking import MASK, is_secret_name, masked, masked_text
from protocol.base import Json

TABLES_OF_CREDENTIALS = frozenset({"env", "headers", "http_headers", "query_params"})
"""Every value in them is hidden: it cannot be known which of them is secret."""

NAMES_OF_VARIABLES = "env_http_headers"
"""A table with names of variables, whatever its keys are called."""


def without_credentials(settings: Mapping[str, Json]) -> dict[str, Json]:
    """A copy in which every credential is masked."""
    return {name: _shown(value, (name,)) for name, value in settings.items()}


def shown_value(key: tuple[str, ...], value: Json) -> Json:
    """The value of one setting without credentials."""
    return _shown(value, key)


def with_credentials(value: Json, present: Json, key: tuple[str, ...]) -> Json:
    """A value that a client writes to `key`, with what it was shown as hidden replaced by what is `present` there.

    Raises InvalidSettings where a hidden value has nothing behind it.
    """
    if isinstance(value, Mapping):
        below = present if isinstance(present, Mapping) else {}
        return {name: with_credentials(part, below.get(name), (*key, name)) for name, part in value.items()}
    if MASK not in repr(value):
        return value
    shown = _shown(present, key)
    if value == shown:
        return present
    if isinstance(value, list) and isinstance(present, list) and isinstance(shown, list):
        behind = {repr(known): real for known, real in zip(shown, present, strict=True)}
        if all(MASK not in repr(each) or repr(each) in behind for each in value):
            return [behind.get(repr(each), each) for each in value]
    place = ".".join(key)[:200]
    raise InvalidSettings(
        f"the value of `{place}` holds `{MASK}`, which stands for a value that is not there"
    )


def _shown(value: Json, key: tuple[str, ...]) -> Json:
    secret = _is_credential(key)
    if isinstance(value, Mapping):
        return {name: _shown(part, (*key, name)) for name, part in value.items()}
    if isinstance(value, list):
        return [MASK if each != "" else each for each in value] if secret else masked(value)
    if isinstance(value, str):
        return MASK if secret and value else masked_text(value)
    return MASK if secret and not isinstance(value, bool) and value is not None else value


def _is_credential(key: tuple[str, ...]) -> bool:
    """By its name, or by the table that it is in: `KIND.NAME.env`, for instance."""
    table = key[:-1]
    if NAMES_OF_VARIABLES in table:
        return False
    return (
        is_secret_name(key[-1])
        or table[-2:] == ("shell_environment_policy", "set")
        or any(name in TABLES_OF_CREDENTIALS for name in table[2:])
    )
