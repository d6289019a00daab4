"""Merges the layers of settings, lowest first:

    switches of this process < the user's file < the profile < the command line < the request's `config` map
    < its named parameters

Tables are merged key by key; any other value is replaced. Of `sandbox_mode` and `default_permissions`, the one in the
higher layer counts; if one layer has both, `default_permissions` counts. This module validates only dotted keys. It
renames old feature switches in each layer before merging, so that an old name in a high layer overrides the new name in
a low one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec
import tomli
from msgspec import Struct

from app_server.engine.config.config_values import CliOverrides, RequestOverrides
from app_server.engine.config.features import (
    ALIASES,
    LEGACY_TOGGLES,
    ONLY_OTHER_NAMES,
    TOOL_SWITCHES,
    WEB_SEARCH_MODES,
    canonical_feature,
)
from app_server.engine.config.setting_types import quote
from app_server.engine.config.settings_reader import derive_error, did_you_mean, plain_name
from app_server.engine.config.settings_table import ABOUT_CLIENTS, every_setting
from app_server.engine.config.stricter import stricter_rights
from app_server_protocol.encoding import Json
from app_server_protocol.engine.thread_settings import ThreadSettings

MAX_DEPTH = 32
"""Maximum number of parts of a key. No setting is nested nearly as deeply; deeper keys are mistakes or attacks."""


MOST_NAMED = 20
"""Maximum number of existing profiles that the error about an unknown profile names."""


class Layered(Struct, frozen=True):
    """The merged layers, and the name of the selected profile."""

    settings: Mapping[str, Json]
    profile: str | None
    old_names: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Current names of switches, by the old names that any layer uses."""


def combine(
    file: Mapping[str, Json],
    cli: CliOverrides,
    request: RequestOverrides,
    switches: Mapping[str, bool] | None = None,
) -> Layered:
    """Merge every layer. Raises ConfigError for an unusable dotted key or a profile that does not exist."""
    command_line, asked = cli_layer(cli), _config_map(request)
    below = overlay({"features": switches} if switches else {}, with_features(file))
    above = overlay(with_features(command_line), request_layer(request))
    everything = overlay(below, above)
    old = old_names(file) | old_names(command_line) | old_names(asked)
    if request.include_apply_patch_tool is not None:
        old |= old_names({"include_apply_patch_tool": request.include_apply_patch_tool})
    name = request.profile or _named_profile(everything, cli, request)
    if name is None:
        return Layered(everything, None, old)
    profiles = everything.get("profiles")
    profile = profiles.get(name) if isinstance(profiles, Mapping) else None
    if not isinstance(profile, Mapping):
        known = sorted(profiles) if isinstance(profiles, Mapping) else []
        named = ", ".join(f"`{plain_name(each)}`" for each in known[:MOST_NAMED])
        there = f"; there are {named}" if named else "; none is configured"
        raise derive_error(
            f"config profile `{plain_name(name)}` not found{did_you_mean(name, set(known))}{there}"
        )
    chosen = profile_settings(profile)
    return Layered(overlay(overlay(below, with_features(chosen)), above), name, old | old_names(chosen))


SANDBOX_KEYS = ("default_permissions", "sandbox_mode")
"""Settings that choose a sandbox, the stronger one first."""


THREAD_KEYS: Final[Mapping[str, str]] = {
    setting.to or key: key for key, setting, part in every_setting() if part.of is ThreadSettings
}
"""Keys of the settings that are fields of `ThreadSettings`, by the fields."""


def overlay(low: Mapping[str, Json], high: Mapping[str, Json]) -> dict[str, Json]:
    """Return `high` merged over `low`, with only one of the settings that choose a sandbox."""
    for given, other in (SANDBOX_KEYS, SANDBOX_KEYS[::-1]):
        if high.get(given) is not None:
            low, high = without(low, other), without(high, other)
            break
    return merge(low, high)


def without(layer: Mapping[str, Json], key: str) -> Mapping[str, Json]:
    """Return a layer without one key."""
    return {name: value for name, value in layer.items() if name != key} if key in layer else layer


def profile_settings(profile: Mapping[str, Json]) -> dict[str, Json]:
    """Return a profile without the keys that are not settings."""
    return {key: value for key, value in profile.items() if key not in ("profile", "profiles", "projects")}


def key_in_file(
    key: tuple[str, ...],
    file: Mapping[str, Json],
    cli: CliOverrides,
    request: RequestOverrides,
    profile: str | None,
) -> tuple[str, ...] | None:
    """Return the key in the file that sets the value of `key`; None if a higher layer sets it, or none does."""
    if value_at(merge(with_features(cli_layer(cli)), request_layer(request)), key) is not None:
        return None
    names = [key]
    if len(key) == 2 and key[0] == "features":
        names += [("features", old) for old, feature in ALIASES.items() if feature == key[1]]
    chosen = [("profiles", profile, *name) for name in names] if profile is not None else []
    return next((name for name in (*chosen, *names) if value_at(file, name) is not None), None)


def cli_layer(cli: CliOverrides) -> dict[str, Json]:
    layer: dict[str, Json] = {}
    for key, text in cli.settings:
        layer = merge(layer, _nested(key, toml_value(text)))
    for names, switch in ((cli.enable, True), (cli.disable, False)):
        for name in names:
            layer = merge(layer, {"features": {name: switch}})
    if cli.above is None:
        return layer
    of_server = cli_layer(cli.above)
    return overlay(overlay(layer, of_server), stricter_rights(layer, of_server))


def request_layer(request: RequestOverrides) -> dict[str, Json]:
    """Return the layer of a request: its `config` map, with those named parameters over it that are settings. A null
    leaves a setting unchanged.
    """
    layer = with_features(_config_map(request))
    patch = request.patch.given()
    named: Mapping[str, Json] = {
        **{key: str(patch[field]) for field, key in THREAD_KEYS.items() if patch.get(field) is not None},
        "model_provider": request.model_provider,
        "sandbox_mode": request.sandbox,
        "default_permissions": patch.get("permission_profile"),
        "developer_instructions": request.developer_instructions,
        "compact_prompt": request.compact_prompt,
    }
    given = {key: value for key, value in named.items() if value is not None}
    layer = overlay(layer, given)
    if request.include_apply_patch_tool is not None:
        layer = merge(layer, {"features": {"apply_patch_freeform": request.include_apply_patch_tool}})
    return layer


def hook_overrides(cli: CliOverrides, request: RequestOverrides) -> Mapping[str, Json]:
    """Return what the command line sets of the tables that decide about hooks, and the request of `hooks` alone: it
    neither switches all hooks nor trusts a project.
    """
    layer = with_features(cli_layer(cli))
    if asked := _config_map(request).get("hooks"):
        layer = merge(layer, {"hooks": asked})
    return {name: layer[name] for name in ("hooks", "features", "projects") if name in layer}


def merge(low: Mapping[str, Json], high: Mapping[str, Json], depth: int = 0) -> dict[str, Json]:
    """Return `high` merged over `low`, as a new table. Nulls in `high` are ignored."""
    merged = dict(low)
    for key, value in high.items():
        below = merged.get(key)
        if isinstance(value, Mapping) and isinstance(below, Mapping) and depth < MAX_DEPTH:
            merged[key] = merge(below, value, depth + 1)
        elif value is not None:
            merged[key] = value
    return merged


def toml_value(text: str) -> Json:
    """Return the value of `-c key=value`: parsed as TOML if that works, else the text without its quotes."""
    try:
        table = tomli.loads(f"value = {text}")
    except (ValueError, RecursionError, OverflowError):
        table = {}
    if list(table) != ["value"]:
        return text.strip().strip("\"'")
    return table["value"]


def with_features(layer: Mapping[str, Json]) -> dict[str, Json]:
    """Return the layer with all its feature switches, under any name, moved to `features` under their current names."""
    if not isinstance(layer.get("features", {}), Mapping):
        return dict(layer)
    switches = {feature: value for _, feature, value in _switches(layer)}
    return {**layer, "features": switches} if switches else dict(layer)


def old_names(layer: Mapping[str, Json]) -> dict[str, str]:
    """Return the switches that this layer sets by an old name, with their current names."""
    named = {name: feature for name, feature, _ in _switches(layer) if name != feature}
    return {name: feature for name, feature in named.items() if name not in ONLY_OTHER_NAMES}


def _switches(layer: Mapping[str, Json]) -> Iterator[tuple[str, str, Json]]:
    """Yield each switch of a layer: its name there, its current name, and its value. If a feature has several switches,
    the last one counts.
    """
    if isinstance(mode := layer.get("web_search"), str) and mode in WEB_SEARCH_MODES:
        yield "web_search_request", "web_search_request", WEB_SEARCH_MODES[mode]
    for old, feature in LEGACY_TOGGLES.items():
        if old in layer:
            yield old, feature, layer[old]
    tools, written = layer.get("tools"), layer.get("features")
    for key, feature in TOOL_SWITCHES.items():
        if f"tools_{key}" in layer:
            yield f"tools.{key}", feature, layer[f"tools_{key}"]
        if isinstance(tools, Mapping) and key in tools:
            yield f"tools.{key}", feature, tools[key]
    if isinstance(written, Mapping):
        for name in sorted(written, key=lambda name: name not in ALIASES):
            yield name, canonical_feature(name) or name, written[name]


def _config_map(request: RequestOverrides) -> dict[str, Json]:
    layer: dict[str, Json] = {}
    for key, value in request.settings.items():
        layer = merge(layer, _nested(key, value))
    layer.pop(ABOUT_CLIENTS, None)
    return layer


def _named_profile(
    everything: Mapping[str, Json], cli: CliOverrides, request: RequestOverrides
) -> str | None:
    of_server = cli.above and cli.above.profile
    name = request.settings.get("profile") or of_server or cli.profile or everything.get("profile")
    if name is None or isinstance(name, str):
        return name or None
    raise derive_error("`profile` must be a string", "profile")


def _nested(key: str, value: Json) -> dict[str, Json]:
    """Return nested tables in which the dotted key has the value. Quoted parts may contain dots, as in TOML."""
    parts = split_key(key)
    if not is_key(parts):
        raise derive_error(f"{quote(key)} is not a key that settings can have")
    for part in reversed(parts):
        value = {part: value}
    nested: dict[str, Json] = value
    return nested


def split_key(key: str) -> list[str]:
    """Split a dotted key into its parts; an empty list if it cannot be split. Quoted parts may contain dots, as in
    TOML.
    """
    return _quoted_parts(key) if '"' in key or "'" in key else key.split(".")


def is_key(parts: Sequence[str]) -> bool:
    """Return whether a setting can have this key."""
    return bool(parts) and all(parts) and len(parts) <= MAX_DEPTH


def value_at(table: Json, key: Sequence[str]) -> Json:
    """Return the value of a key; None if it is not set."""
    for part in key:
        if not isinstance(table, dict) or part not in table:
            return None
        table = table[part]
    return table


def _quoted_parts(key: str) -> list[str]:
    try:
        table: Json = tomli.loads(f"{key} = 0")
    except (ValueError, RecursionError):
        return []
    parts: list[str] = []
    while isinstance(table, dict):
        if len(table) != 1:
            return []
        ((part, table),) = table.items()
        parts.append(part)
    return parts
