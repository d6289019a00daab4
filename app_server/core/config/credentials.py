"""Settings without their credentials, for clients to show; and the way back, for clients that write what they read.

What holds a credential is recognised by names (`http_headers`, `…_token`), and by the forms in which texts hold one: a
password in an address, `--token=…` in arguments. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from app_server.core.errors import InvalidSettings
from protocol.base import Json

HIDDEN = "********"
"""In the place of a credential."""

TABLES_OF_CREDENTIALS = frozenset({"env", "headers", "http_headers", "query_params"})
"""Every value in them is hidden: it cannot be known which of them is secret."""

NAMES_OF_VARIABLES = "env_http_headers"
"""A table with names of variables, whatever its keys are called."""

NAMES_OF_CREDENTIALS = (
    "token", "secret", "password", "passphrase", "apikey", "api_key", "api-key", "access_key", "private_key",
    "bearer", "authorization",
)  # fmt: skip
"""How the names of settings end that are credentials; `bearer_token_env_var` names a variable and is none."""

_FLAG = r"--?[\w-]{0,60}(?:key|token|secret|password|passphrase)"
_IN_TEXTS = (
    (re.compile(r"(?<=://)[^/?#@\s:]{0,200}:[^/?#@\s]{0,1000}(?=@)"), HIDDEN),
    (
        re.compile(r"(?i)(?<=[?&])([^=&#\s]{0,60}(?:key|token|secret|password|sig)[^=&#\s]{0,60}=)[^&#\s]+"),
        rf"\1{HIDDEN}",
    ),
    (re.compile(rf"(?is)^({_FLAG}=).+"), rf"\1{HIDDEN}"),
)
"""An address with a password, an address with a key in its query, an argument. Bounded, so that none takes long."""

_FLAG_BEFORE = re.compile(rf"(?i){_FLAG}")


def without_credentials(settings: Mapping[str, Json]) -> dict[str, Json]:
    """A copy in which every credential is `HIDDEN`."""
    return {name: _shown(value, (name,)) for name, value in settings.items()}


def shown_value(key: tuple[str, ...], value: Json) -> Json:
    """The value of one setting without credentials."""
    return _shown(value, key)


def holds_credential(text: str) -> bool:
    return _shown_text(text) != text


def with_credentials(value: Json, present: Json, key: tuple[str, ...]) -> Json:
    """A value that a client writes to `key`, with what it was shown as hidden replaced by what is `present` there.

    Raises InvalidSettings where a hidden value has nothing behind it.
    """
    if isinstance(value, Mapping):
        below = present if isinstance(present, Mapping) else {}
        return {name: with_credentials(part, below.get(name), (*key, name)) for name, part in value.items()}
    if HIDDEN not in repr(value):
        return value
    shown = _shown(present, key)
    if value == shown:
        return present
    if isinstance(value, list) and isinstance(present, list) and isinstance(shown, list):
        behind = {repr(known): real for known, real in zip(shown, present, strict=True)}
        if all(HIDDEN not in repr(each) or repr(each) in behind for each in value):
            return [behind.get(repr(each), each) for each in value]
    place = ".".join(key)[:200]
    raise InvalidSettings(
        f"the value of `{place}` holds `{HIDDEN}`, which stands for a value that is not there"
    )


def _shown(value: Json, key: tuple[str, ...]) -> Json:
    secret = _is_credential(key)
    if isinstance(value, Mapping):
        return {name: _shown(part, (*key, name)) for name, part in value.items()}
    if isinstance(value, list):
        return [HIDDEN if secret and each != "" else _shown_entry(value, n) for n, each in enumerate(value)]
    if isinstance(value, str):
        return HIDDEN if secret and value else _shown_text(value)
    return HIDDEN if secret and not isinstance(value, bool) and value is not None else value


def _is_credential(key: tuple[str, ...]) -> bool:
    """By its name, or by the table that it is in: `KIND.NAME.env`, for instance."""
    table = key[:-1]
    if NAMES_OF_VARIABLES in table:
        return False
    return (
        key[-1].lower().endswith(NAMES_OF_CREDENTIALS)
        or table[-2:] == ("shell_environment_policy", "set")
        or any(name in TABLES_OF_CREDENTIALS for name in table[2:])
    )


def _shown_entry(entries: list[Json], n: int) -> Json:
    """One entry of a list, which may be an argument behind its flag."""
    entry = entries[n]
    if isinstance(entry, Mapping):
        return without_credentials(entry)
    if isinstance(entry, list):
        return [_shown_entry(entry, inner) for inner in range(len(entry))]
    if not isinstance(entry, str):
        return entry
    before = entries[n - 1] if n else None
    if isinstance(before, str) and _FLAG_BEFORE.fullmatch(before) and not entry.startswith("-"):
        return HIDDEN
    return _shown_text(entry)


def _shown_text(text: str) -> str:
    for pattern, replacement in _IN_TEXTS:
        text = pattern.sub(replacement, text)
    return text
