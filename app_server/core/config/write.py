"""Writes settings of a client into the user's file: only where nothing was written since the client read it, and only
settings that conversations can begin with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path

from app_server.core.config.credentials import with_credentials
from app_server.core.config.edit import SettingEdit, edited
from app_server.core.config.effective import LayerKind, SettingsLayer, effective_settings, settings_version
from app_server.core.config.fence import OPEN, is_fenced
from app_server.core.config.key_path import value_at
from app_server.core.config.layers import ABOUT_CLIENTS, combine
from app_server.core.config.resolve import ResolveInputs, resolve
from app_server.core.config.rewrite import rewrite_config
from app_server.core.config.settings_reader import SettingError
from app_server.core.config.types import CliOverrides, RequestOverrides
from app_server.core.errors import ConfigError, InvalidSettings, VersionConflict
from protocol.base import Json
from protocol.records import dataclass


@dataclass(frozen=True, slots=True)
class SettingsPlace:
    """Whose settings are written, and what counts beside them."""

    home: Path
    cwd: Path
    cli: CliOverrides
    env: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Overridden:
    """A written setting that another layer overrides, and the value that counts."""

    key: tuple[str, ...]
    layer: SettingsLayer
    value: Json = field(repr=False)


@dataclass(frozen=True, slots=True)
class WriteOutcome:
    version: str
    """Of the file as it is now."""
    overridden: Overridden | None


def write_settings(
    place: SettingsPlace, edits: Sequence[SettingEdit], expected_version: str | None = None
) -> WriteOutcome:
    """All edits or none. Raises VersionConflict, InvalidSettings, or ConfigError where the file cannot be changed."""

    def change(settings: Mapping[str, Json]) -> Mapping[str, Json]:
        if expected_version not in (None, settings_version(settings)):
            raise VersionConflict(
                "Configuration was modified since last read. Fetch latest version and retry."
            )
        after = edited(settings, edits, with_credentials)
        _check(place, settings, after, edits)
        return after

    written = rewrite_config(place.home, change).after
    return WriteOutcome(settings_version(written), _overridden(written, place.cli, edits))


def _check(
    place: SettingsPlace,
    before: Mapping[str, Json],
    after: Mapping[str, Json],
    edits: Sequence[SettingEdit],
) -> None:
    """Raises InvalidSettings where conversations could not begin with `after`, or where it says something else about
    what clients may do.

    The file has to be right by itself too, because other programs read it, unless it was wrong before.
    """
    if _about_clients(before) != _about_clients(after):
        raise InvalidSettings(f"`{ABOUT_CLIENTS}` says what clients may do: only the user changes it")
    closed = next((edit.key[0] for edit in edits if edit.key[0] not in OPEN), None)
    if closed is not None and is_fenced(before, place.cli):
        raise InvalidSettings(f"only the user changes `{closed}`, because app_server.client_rights is false")
    problem = _problem(place, after, place.cli)
    if problem is None and _problem(place, before, CliOverrides()) is None:
        problem = _problem(place, after, CliOverrides())
    for profile in _profiles(edits):
        if problem is None and isinstance(value_at(after, ("profiles", profile)), Mapping):
            problem = _problem(place, after, CliOverrides(profile=profile))
    if problem is not None:
        raise InvalidSettings(f"Invalid configuration: {problem}")


def _problem(place: SettingsPlace, settings: Mapping[str, Json], cli: CliOverrides) -> str | None:
    try:
        resolve(combine(settings, cli, RequestOverrides()), ResolveInputs(place.home, place.cwd, place.env))
    except SettingError as error:
        return error.problem
    except ConfigError as error:
        return str(error)
    except RecursionError:
        return "the settings are nested too deeply"
    return None


def _about_clients(settings: Mapping[str, Json]) -> Mapping[str, Json]:
    """What the file says about clients, by the profile that says it."""
    tables = {"": settings.get(ABOUT_CLIENTS)}
    profiles = settings.get("profiles")
    for name, profile in profiles.items() if isinstance(profiles, Mapping) else ():
        tables[f"profile {name}"] = profile.get(ABOUT_CLIENTS) if isinstance(profile, Mapping) else None
    return {place: table for place, table in tables.items() if table is not None}


def _profiles(edits: Sequence[SettingEdit]) -> list[str]:
    """The profiles that are edited one by one."""
    return [edit.key[1] for edit in edits if edit.key[0] == "profiles" and len(edit.key) > 1]


def _overridden(
    settings: Mapping[str, Json], cli: CliOverrides, edits: Sequence[SettingEdit]
) -> Overridden | None:
    """The first edit whose value is not the one that counts."""
    effective = effective_settings(settings, cli)
    for edit in edits:
        counts = value_at(effective.settings, edit.key)
        if counts == value_at(settings, edit.key):
            continue
        for layer in effective.layers:
            if layer.kind is not LayerKind.USER and value_at(layer.settings, edit.key) is not None:
                return Overridden(edit.key, layer, counts)
    return None
