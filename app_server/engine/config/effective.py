"""Settings as clients see them: the effective ones, with the layer that each comes from, and without credentials. Also
the way back: edits by clients, and the settings after them. Pure; `settings_file` writes the file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum

from msgspec import Struct

from app_server.engine.config.config_values import CliOverrides, RequestOverrides
from app_server.engine.config.layers import (
    MAX_DEPTH,
    cli_layer,
    combine,
    is_key,
    merge,
    profile_settings,
    split_key,
    value_at,
)
from app_server.engine.support.engine_errors import InvalidSettings
from app_server.engine.support.redaction import MASK, is_secret_name, masked, masked_text
from app_server_protocol.encoding import Json
from app_server_protocol.values import Redacted, replace


class LayerKind(StrEnum):
    USER = "user"
    """The user's file."""
    PROFILE = "profile"
    """The chosen profile in the user's file."""
    COMMAND_LINE = "command_line"


class SettingsLayer(Struct, frozen=True):
    kind: LayerKind
    settings: Mapping[str, Json]
    version: str
    """Version of the settings; for a profile, too, that of the whole file."""
    profile: str | None = None


class Overridden(Redacted, frozen=True):
    """A setting that was written but that another layer overrides, with the effective value, without credentials."""

    HIDDEN = ("value",)
    key: tuple[str, ...]
    layer: SettingsLayer
    value: Json


class WriteOutcome(Struct, frozen=True):
    version: str
    """Version of the file after the write."""
    overridden: Overridden | None


class EffectiveSettings(Struct, frozen=True):
    settings: Mapping[str, Json]
    origins: Mapping[str, SettingsLayer]
    """Layer of each setting, by dotted key. A list is one setting."""
    layers: Sequence[SettingsLayer]
    """Layers, the highest one first."""

    def without_credentials(self) -> EffectiveSettings:
        """Return a copy in which every credential is masked."""
        shown = {
            layer.kind: replace(layer, settings=without_credentials(layer.settings)) for layer in self.layers
        }
        return EffectiveSettings(
            without_credentials(self.settings),
            {key: shown[layer.kind] for key, layer in self.origins.items()},
            list(shown.values()),
        )


def settings_version(settings: Mapping[str, Json]) -> str:
    """Return a hash that is the same for equal settings only."""
    text = json.dumps(settings, default=repr, sort_keys=True, separators=(",", ":"))
    return "sha256:" + hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()


def effective_settings(file: Mapping[str, Json], cli: CliOverrides) -> EffectiveSettings:
    """Return the settings of a conversation whose request has none. Raises ConfigError."""
    profile = combine(file, cli, RequestOverrides()).profile
    file_version = settings_version(file)
    layers = [SettingsLayer(LayerKind.USER, file, file_version)]
    command_line = cli_layer(cli)
    if profile is not None:
        chosen = profile_settings(merge(file, command_line)["profiles"][profile])
        layers.append(SettingsLayer(LayerKind.PROFILE, chosen, file_version, profile))
    if command_line:
        layers.append(SettingsLayer(LayerKind.COMMAND_LINE, command_line, settings_version(command_line)))
    settings: dict[str, Json] = {}
    origins: dict[str, SettingsLayer] = {}
    for layer in layers:
        settings = merge(settings, layer.settings)
        origins |= dict.fromkeys(_keys(layer.settings), layer)
    present = set(_keys(settings))
    return EffectiveSettings(
        settings, {key: layer for key, layer in origins.items() if key in present}, layers[::-1]
    )


def _keys(table: Mapping[str, Json], path: str = "") -> Iterator[str]:
    """Yield the dotted keys of all settings in a table. A name that would otherwise be split is quoted, as in TOML."""
    for name, value in table.items():
        bare = name.isascii() and name.replace("_", "").replace("-", "").isalnum()
        key = path + (name if bare else json.dumps(name, ensure_ascii=False))
        if isinstance(value, Mapping) and value:
            yield from _keys(value, f"{key}.")
        elif value is not None:
            yield key


TABLES_OF_CREDENTIALS = frozenset({"env", "headers", "http_headers", "query_params"})
"""Tables in which every value is masked: the server cannot know which of the values are secret."""

NAMES_OF_VARIABLES = "env_http_headers"
"""Table whose values are names of environment variables. Its keys do not make the values secret."""


def without_credentials(settings: Mapping[str, Json]) -> dict[str, Json]:
    """Return a copy in which every credential is masked."""
    return {name: shown_value(value, (name,)) for name, value in settings.items()}


def with_credentials(value: Json, present: Json, key: tuple[str, ...]) -> Json:
    """Return the value that a client writes to `key`, with each masked part replaced by the `present` value.

    Raises InvalidSettings if a masked part has no present value.
    """
    if isinstance(value, Mapping):
        below = present if isinstance(present, Mapping) else {}
        return {name: with_credentials(part, below.get(name), (*key, name)) for name, part in value.items()}
    if MASK not in repr(value):
        return value
    shown = shown_value(present, key)
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


def shown_value(value: Json, key: tuple[str, ...]) -> Json:
    """Return the value of one setting, with credentials masked."""
    secret = _is_credential(key)
    if isinstance(value, Mapping):
        return {name: shown_value(part, (*key, name)) for name, part in value.items()}
    if isinstance(value, list):
        return [MASK if each != "" else each for each in value] if secret else masked(value)
    if isinstance(value, str):
        return MASK if secret and value else masked_text(value)
    return MASK if secret and not isinstance(value, bool) and value is not None else value


def _is_credential(key: tuple[str, ...]) -> bool:
    """Return whether a key holds a credential, by its name or by the table that it is in: `KIND.NAME.env`, for
    instance.
    """
    table = key[:-1]
    if NAMES_OF_VARIABLES in table:
        return False
    return (
        is_secret_name(key[-1])
        or table[-2:] == ("shell_environment_policy", "set")
        or any(name in TABLES_OF_CREDENTIALS for name in table[2:])
    )


INTEGERS = range(-(2**63), 2**63)


class SettingEdit(Struct, frozen=True):
    """A new value for one key; None removes the setting."""

    key: tuple[str, ...]
    value: Json
    merge: bool = False
    """Whether to merge a table into the existing one, instead of replacing it."""


def setting_edit(key: str, value: Json, *, merge: bool) -> SettingEdit:
    """Return the edit for a key and a value from a client. Raises InvalidSettings if settings cannot have them."""
    if not key.strip():
        raise InvalidSettings("keyPath must not be empty")
    parts = [part.strip() for part in split_key(key)]
    if not is_key(parts):
        reason = "is not a key" if not parts or all(parts) else "segments must not be empty"
        raise InvalidSettings(f"keyPath {reason}")
    if value is not None:
        _check_value(value, len(parts))
    return SettingEdit(tuple(parts), value, merge)


class UnsafeEdit(Exception):
    """The form of the file does not allow this edit without other changes."""


def edited(settings: Mapping[str, Json], edits: Sequence[SettingEdit]) -> dict[str, Json]:
    """Return the settings after these edits. Raises InvalidSettings if one of them does not fit."""
    table = dict(settings)
    for edit in edits:
        value = with_credentials(edit.value, value_at(table, edit.key), edit.key)
        table = _with(table, edit.key, value, merge_tables=edit.merge)
    return table


def same_settings(one: Json, other: Json) -> bool:
    """Return whether both are equal. Two NaNs are equal; 1, 1.0 and true are different."""
    return json.dumps(one, default=repr, sort_keys=True) == json.dumps(other, default=repr, sort_keys=True)


def _with(
    table: Mapping[str, Json], key: tuple[str, ...], value: Json, *, merge_tables: bool
) -> dict[str, Json]:
    name, rest = key[0], key[1:]
    if not rest:
        kept = {other: known for other, known in table.items() if other != name or value is not None}
        present: Json = table.get(name)
        if merge_tables and isinstance(value, Mapping) and isinstance(present, Mapping):
            value = merge(present, value)
        return kept if value is None else kept | {name: value}
    below = table.get(name)
    if below is not None and not isinstance(below, Mapping):
        raise InvalidSettings("cannot set value on non-table parent")
    if below is None and value is None:
        return dict(table)
    return {**table, name: _with(below or {}, rest, value, merge_tables=merge_tables)}


def _check_value(value: Json, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise InvalidSettings("invalid value: it is nested too deeply")
    if value is None:
        raise InvalidSettings("invalid value: null is no value within a list or a table")
    if isinstance(value, int) and not isinstance(value, bool) and value not in INTEGERS:
        raise InvalidSettings("invalid value: an integer must fit into 64 bits")
    if isinstance(value, Mapping):
        if "" in value:
            raise InvalidSettings("invalid value: a key must not be empty")
        for part in value.values():
            _check_value(part, depth + 1)
    elif isinstance(value, list):
        for part in value:
            _check_value(part, depth + 1)
