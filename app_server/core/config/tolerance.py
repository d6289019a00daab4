"""Settings of the user's file that cannot be understood: which of them cost only themselves. Pure.

A file is shared with later versions and other programs, and one entry of it must not end every conversation. What says
how far commands may go is no such entry: guessed wrongly, it would give more than the user meant. Nor is what a client
or a command line asks for: who asked is told.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from app_server.core.config.layers import Layered, value_at
from app_server.core.config.settings_reader import SettingError
from app_server.core.config.types import SettingsWarning
from app_server_protocol.structs import Json

Key = tuple[str, ...]
T = TypeVar("T")

GUARDS = frozenset(
    {
        *("approval_policy", "sandbox_mode", "sandbox_workspace_write", "permissions", "default_permissions"),
        *("shell_environment_policy", "app_server", "history", "profile", "profiles"),
        *("model", "model_provider"),
        *("forced_login_method", "forced_chatgpt_workspace_id"),
    }
)
"""Tables and settings that limit what commands, clients and logins may do, and what is kept; those that choose others;
and those that choose the model, since another one would be told everything, and paid for, unasked. One that is wrong
ends the conversation.
"""

WHOLE_ENTRIES: Mapping[str, int] = {"mcp_servers": 2, "model_providers": 2, "otel": 1}
"""Parts of a key that name an entry which is left out as a whole: without one setting it could offer more tools than
it was meant to, or send something elsewhere.
"""

MAX_LEFT_OUT = 50


def entry_of(key: Key) -> Key | None:
    """Return the key of what is left out because of a wrong setting; None if it must not be."""
    if not key or key[0] in GUARDS:
        return None
    if key[0] == "model_providers" and key[2:3] == ("quirks",):  # which lead a request nowhere else
        return key
    return key[: WHOLE_ENTRIES.get(key[0], len(key))]


def without_wrong_entries(
    file: Mapping[str, Json],
    combined: Callable[[Mapping[str, Json]], Layered],
    resolved: Callable[[Layered], T],
    key_in_file: Callable[[Key, Layered], Key | None],
) -> tuple[T, tuple[SettingsWarning, ...]]:
    """Return what the file gives without its entries that are wrong, with a warning for each.

    `combined` merges the layers above a file, `resolved` checks them, and `key_in_file` says where the file sets a key,
    None if it does not. Raises ConfigError where something is wrong that must not be left out.
    """
    warnings: list[SettingsWarning] = []
    while True:
        layered = combined(file)
        try:
            return resolved(layered), tuple(warnings)
        except SettingError as error:
            entry, named, written = entry_of(error.key), error.key, None
            if entry is not None and (written := key_in_file(named, layered)) is None:
                named = entry  # a part of it is missing
                written = key_in_file(named, layered)
            if entry is None or written is None or len(warnings) == MAX_LEFT_OUT:
                # What was left out may be the reason.
                why = "; ".join((error.problem, *(each.text for each in warnings)))
                raise SettingError(why, error.key) from error
            in_profile = 2 if written[0] == "profiles" else 0
            file = _with(file, written[: in_profile + len(entry)], error.rest)
            left = "that part of it" if error.rest is not None else f"`{'.'.join(entry)}`"
            warnings.append(SettingsWarning(f"{error.problem}; {left} is ignored", named))


def _with(file: Mapping[str, Json], key: Key, value: Json) -> dict[str, Json]:
    """Return the settings with another value for a key, or without it for None."""
    name, *rest = key
    if rest:
        below = value_at(dict(file), [name])
        value = _with(below if isinstance(below, Mapping) else {}, tuple(rest), value)
    kept = {other: known for other, known in file.items() if other != name}
    return kept if value is None else kept | {name: value}


def joined(warnings: Sequence[SettingsWarning]) -> str | None:
    """Return one text for all warnings; None without any."""
    if len(warnings) < 2:
        return str(warnings[0]) if warnings else None
    return "\n- ".join((f"{len(warnings)} settings are not used as they are written:", *map(str, warnings)))
