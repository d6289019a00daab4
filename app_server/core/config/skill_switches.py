"""Which skills the user has switched off: the entries of `[[skills.config]]` in config.toml, by name or by path.

A skill is on unless an entry says otherwise. What is damaged switches nothing off and is left as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from app_server.core.config.toml_file import read_config_file
from protocol.structs import Json


class SkillSwitch(Struct, frozen=True):
    """One entry; it has a name or the path of a SKILL.md."""

    name: str | None
    path: str | None
    enabled: bool


def skill_switches(home: Path) -> tuple[SkillSwitch, ...]:
    """Return the switches in the order of the file; the last one for a skill counts. Raises ConfigError."""
    return tuple(_switch(entry) for entry in switch_entries(read_config_file(home)) if _says_something(entry))


def is_enabled(switches: Sequence[SkillSwitch], name: str, path: str) -> bool:
    for switch in reversed(switches):
        if switch.path == path or (switch.path is None and switch.name == name):
            return switch.enabled
    return True


def switch_entries(settings: Mapping[str, Json]) -> list[Mapping[str, Json]]:
    """Return the entries of the file, damaged ones too."""
    match settings.get("skills"):
        case {"config": list(entries)}:
            return entries
        case _:
            return []


def _says_something(entry: Json) -> bool:
    match entry:
        case {"enabled": bool(), "name": str()} | {"enabled": bool(), "path": str()}:
            return True
        case _:
            return False


def _switch(entry: Mapping[str, Json]) -> SkillSwitch:
    name, path = entry.get("name"), entry.get("path")
    return SkillSwitch(
        name if isinstance(name, str) else None, path if isinstance(path, str) else None, entry["enabled"]
    )
