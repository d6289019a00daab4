"""Which skills the user has switched off: the entries of `[[skills.config]]` in config.toml, by name or by path.

A skill is on unless an entry says otherwise. What is damaged switches nothing off and is left as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from app_server.core.config.toml_file import read_config_file
from app_server.core.config.write import rewrite_config
from app_server.core.errors import InvalidSettings
from protocol.structs import Json


class SkillSwitch(Struct, frozen=True):
    """One entry; it has a name or the path of a SKILL.md."""

    name: str | None
    path: str | None
    enabled: bool


def skill_switches(home: Path) -> tuple[SkillSwitch, ...]:
    """Return the switches in the order of the file; the last one for a skill counts. Raises ConfigError."""
    return tuple(_switch(entry) for entry in _entries(read_config_file(home)) if _says_something(entry))


def is_enabled(switches: Sequence[SkillSwitch], name: str, path: str) -> bool:
    for switch in reversed(switches):
        if switch.path == path or (switch.path is None and switch.name == name):
            return switch.enabled
    return True


def write_skill_switch(home: Path, switch: SkillSwitch) -> None:
    """Add or remove the entry that switches this one off. If it raises ConfigError, the file is unchanged."""

    def change(settings: Mapping[str, Json]) -> Mapping[str, Json]:
        kept = [entry for entry in _entries(settings) if not _is_about(entry, switch)]
        return _with_entries(settings, kept if switch.enabled else [*kept, _entry(switch)])

    rewrite_config(home, change)


def _entries(settings: Mapping[str, Json]) -> list[Mapping[str, Json]]:
    match settings.get("skills"):
        case {"config": list(entries)}:
            return entries
        case _:
            return []


def _with_entries(before: Mapping[str, Json], entries: Sequence[Mapping[str, Json]]) -> Mapping[str, Json]:
    written = before.get("skills", {})
    if not isinstance(written, Mapping):
        raise InvalidSettings("`skills` is not a table")
    skills = {key: value for key, value in written.items() if key != "config"}
    if entries:
        skills["config"] = list(entries)
    rest = {key: value for key, value in before.items() if key != "skills"}
    return rest | ({"skills": skills} if skills else {})


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


def _entry(switch: SkillSwitch) -> dict[str, Json]:
    named = {"name": switch.name} if switch.path is None else {"path": switch.path}
    return {**named, "enabled": switch.enabled}


def _is_about(entry: Json, switch: SkillSwitch) -> bool:
    if not isinstance(entry, Mapping):
        return False
    if switch.path is not None:
        return entry.get("path") == switch.path
    return entry.get("path") is None and entry.get("name") == switch.name
