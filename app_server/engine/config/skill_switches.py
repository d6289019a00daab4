"""Reads and changes the user's switches of skills: the entries of `[[skills.config]]` in config.toml, by name or by
path.

A skill is on unless an entry says otherwise. A damaged entry switches nothing off and is left unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from app_server.engine.config.toml_file import read_config_file
from app_server.engine.support.engine_errors import InvalidSettings
from app_server_protocol.encoding import Json


class SkillSwitch(Struct, frozen=True, kw_only=True):
    """One entry. It has a name, or the path of a SKILL.md."""

    name: str | None = None
    path: str | None = None
    enabled: bool


def skill_switches(home: Path) -> tuple[SkillSwitch, ...]:
    """Return the switches in the order of the file; the last one for a skill counts. Raises ConfigError."""
    found: list[SkillSwitch] = []
    for entry in _entries(read_config_file(home)):
        with suppress(msgspec.ValidationError):
            found.append(msgspec.convert(entry, SkillSwitch))
    return tuple(found)


def is_enabled(switches: Sequence[SkillSwitch], name: str, path: str) -> bool:
    for switch in reversed(switches):
        if switch.path == path or (switch.path is None and switch.name == name):
            return switch.enabled
    return True


def switched(settings: Mapping[str, Json], switch: SkillSwitch) -> Mapping[str, Json]:
    """Return settings with an entry that switches this skill off; without one, if the skill is switched on."""
    skills = settings.get("skills", {})
    if not isinstance(skills, Mapping):
        raise InvalidSettings("`skills` is not a table")
    entries = [entry for entry in _entries(settings) if not _is_about(entry, switch)]
    if not switch.enabled:
        named = {"name": switch.name} if switch.path is None else {"path": switch.path}
        entries.append({**named, "enabled": False})
    skills = {key: value for key, value in skills.items() if key != "config"}
    skills |= {"config": entries} if entries else {}
    rest = {key: value for key, value in settings.items() if key != "skills"}
    return rest | ({"skills": skills} if skills else {})


def _entries(settings: Mapping[str, Json]) -> list[Mapping[str, Json]]:
    """Return the entries of the file, including damaged ones."""
    match settings.get("skills"):
        case {"config": list(entries)}:
            return entries
        case _:
            return []


def _is_about(entry: Json, switch: SkillSwitch) -> bool:
    match entry:
        case {"path": path}:
            return bool(path == switch.path)
        case {"name": name}:
            return switch.path is None and bool(name == switch.name)
        case _:
            return False
