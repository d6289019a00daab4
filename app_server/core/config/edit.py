"""Edits of settings: what the new settings are. Pure; `toml_text` makes the text that says so, `rewrite` writes it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from app_server.core.config.key_path import MAX_DEPTH, is_key, split_key, value_at
from app_server.core.config.layers import merge as merge_tables
from app_server.core.errors import InvalidSettings
from protocol.structs import Json

INTEGERS = range(-(2**63), 2**63)


class SettingEdit(Struct, frozen=True):
    """A new value for one key; None removes the setting."""

    key: tuple[str, ...]
    value: Json
    merge: bool = False
    """Lay a table over the one that is there, instead of replacing it."""


def setting_edit(key: str, value: Json, *, merge: bool) -> SettingEdit:
    """Check a key and a value that a client gives. Raises InvalidSettings for what settings cannot have."""
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
    """The form of the file does not allow to change it without changing more."""


Complete = Callable[[Json, Json, tuple[str, ...]], Json]
"""The value that is meant, from the one that is given, the one that is there, and the key."""


def edited(
    settings: Mapping[str, Json], edits: Sequence[SettingEdit], complete: Complete | None = None
) -> dict[str, Json]:
    """Return the settings after these edits. Raises InvalidSettings where one of them does not fit."""
    table = dict(settings)
    for edit in edits:
        value = edit.value
        if complete is not None:
            value = complete(value, value_at(table, edit.key), edit.key)
        table = _with(table, edit.key, value, merge=edit.merge)
    return table


def same_settings(one: Json, other: Json) -> bool:
    """Return whether both are equal, also where they contain a NaN; 1 and 1.0 and true differ."""
    return json.dumps(one, default=repr, sort_keys=True) == json.dumps(other, default=repr, sort_keys=True)


def _with(table: Mapping[str, Json], key: tuple[str, ...], value: Json, *, merge: bool) -> dict[str, Json]:
    name, rest = key[0], key[1:]
    if not rest:
        kept = {other: known for other, known in table.items() if other != name or value is not None}
        present: Json = table.get(name)
        if merge and isinstance(value, Mapping) and isinstance(present, Mapping):
            value = merge_tables(present, value)
        return kept if value is None else kept | {name: value}
    below = table.get(name)
    if below is not None and not isinstance(below, Mapping):
        raise InvalidSettings("cannot set value on non-table parent")
    if below is None and value is None:
        return dict(table)
    return {**table, name: _with(below or {}, rest, value, merge=merge)}


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
