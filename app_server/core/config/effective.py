"""The settings in force as they are written, the layer that each comes from, and the layers themselves. Pure.

For clients that show the configuration. What is set nowhere is not here: defaults are no settings.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum

from app_server.core.config.layers import cli_layer, combine, merge, profile_settings
from app_server.core.config.types import CliOverrides, RequestOverrides
from protocol.base import Json
from protocol.records import dataclass


class LayerKind(StrEnum):
    USER = "user"
    """The user's file."""
    PROFILE = "profile"
    """The profile in it that was chosen."""
    COMMAND_LINE = "command_line"


@dataclass(frozen=True, slots=True)
class SettingsLayer:
    kind: LayerKind
    settings: Mapping[str, Json]
    version: str
    """Of the whole file, for a profile too."""
    profile: str | None = None


@dataclass(frozen=True, slots=True)
class EffectiveSettings:
    settings: Mapping[str, Json]
    origins: Mapping[str, SettingsLayer]
    """By dotted key; lists are one setting."""
    layers: Sequence[SettingsLayer]
    """The first wins."""


def settings_version(settings: Mapping[str, Json]) -> str:
    """The same for the same settings, and for no others."""
    text = json.dumps(settings, default=repr, sort_keys=True, separators=(",", ":"))
    return "sha256:" + hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()


def effective_settings(file: Mapping[str, Json], cli: CliOverrides) -> EffectiveSettings:
    """What a conversation begins with that asks for nothing. Raises ConfigError."""
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
    """Dotted keys of all settings in a table; a name that would be taken apart is quoted, as in TOML."""
    for name, value in table.items():
        bare = name.isascii() and name.replace("_", "").replace("-", "").isalnum()
        key = path + (name if bare else json.dumps(name, ensure_ascii=False))
        if isinstance(value, Mapping) and value:
            yield from _keys(value, f"{key}.")
        elif value is not None:
            yield key
