"""Leaves out entries of the user's file that cannot be understood, if that is safe. Pure.

The file is shared with later versions and other programs, so one wrong entry must not stop every conversation. An entry
that limits what commands may do is never left out: a wrong guess would grant more than the user meant. A wrong setting
from a client or a command line is not left out either: its sender gets the error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from app_server.engine.config.config_values import SettingsWarning
from app_server.engine.config.layers import Layered, value_at
from app_server.engine.config.settings_reader import SettingError
from app_server_protocol.encoding import Json

Key = tuple[str, ...]
T = TypeVar("T")

GUARDS = frozenset(
    {
        *("approval_policy", "sandbox_mode", "sandbox_workspace_write", "permissions", "default_permissions"),
        *("shell_environment_policy", "app_server", "hooks", "history", "profile", "profiles"),
        *("model", "model_provider"),
        *("forced_login_method", "forced_chatgpt_workspace_id"),
    }
)
"""Settings that are never left out; a wrong one stops the conversation. They are those that limit what commands,
clients and logins may do, and what is stored; those that choose other settings; and those that choose the model, since
another model would get the whole conversation and cost money without the user's consent.
"""

WHOLE_ENTRIES: Mapping[str, int] = {"mcp_servers": 2, "model_providers": 2, "otel": 1}
"""Number of parts of the key of an entry that is left out as a whole: with one setting missing it could offer more
tools than it was meant to, or send something elsewhere.
"""

MAX_LEFT_OUT = 50


def entry_of(key: Key) -> Key | None:
    """Return the key of the entry that is left out because of a wrong setting; None if it must not be left out."""
    if not key or key[0] in GUARDS:
        return None
    if key[0] == "model_providers" and key[2:3] == (
        "quirks",
    ):  # quirks do not change where a request is sent
        return key
    return key[: WHOLE_ENTRIES.get(key[0], len(key))]


def without_wrong_entries(
    file: Mapping[str, Json],
    combined: Callable[[Mapping[str, Json]], Layered],
    resolved: Callable[[Layered], T],
    key_in_file: Callable[[Key, Layered], Key | None],
) -> tuple[T, tuple[SettingsWarning, ...]]:
    """Return the result for the file without its wrong entries, and a warning for each of them.

    `combined` merges the layers above a file, `resolved` checks them, and `key_in_file` returns the key by which the
    file sets a value, or None if the file does not set it. Raises ConfigError if something is wrong that must not be
    left out.
    """
    warnings: list[SettingsWarning] = []
    while True:
        layered = combined(file)
        try:
            return resolved(layered), tuple(warnings)
        except SettingError as error:
            entry, named, written = entry_of(error.key), error.key, None
            if entry is not None and (written := key_in_file(named, layered)) is None:
                named = entry  # a part of the entry is missing
                written = key_in_file(named, layered)
            if entry is None or written is None or len(warnings) == MAX_LEFT_OUT:
                # An entry that was left out may be the reason of this error.
                why = "; ".join((error.problem, *(each.text for each in warnings)))
                raise SettingError(why, error.key) from error
            in_profile = 2 if written[0] == "profiles" else 0
            file = _with(file, written[: in_profile + len(entry)], error.rest)
            left = "that part of it" if error.rest is not None else f"`{'.'.join(entry)}`"
            warnings.append(SettingsWarning(f"{error.problem}; {left} is ignored", named))


def _with(file: Mapping[str, Json], key: Key, value: Json) -> dict[str, Json]:
    """Return the settings with another value for a key; without the key if the value is None."""
    name, *rest = key
    if rest:
        below = value_at(dict(file), [name])
        value = _with(below if isinstance(below, Mapping) else {}, tuple(rest), value)
    kept = {other: known for other, known in file.items() if other != name}
    return kept if value is None else kept | {name: value}


def joined(warnings: Sequence[SettingsWarning]) -> str | None:
    """Return one text for all warnings; None if there are none."""
    if len(warnings) < 2:
        return str(warnings[0]) if warnings else None
    return "\n- ".join((f"{len(warnings)} settings are not used as they are written:", *map(str, warnings)))
