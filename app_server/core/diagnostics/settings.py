"""The check of the configuration: whether a conversation could begin with it, and what in it has no effect."""

from __future__ import annotations

from pathlib import Path

from app_server.core.config.toml_file import CONFIG_FILE
from app_server.core.config.types import Config
from app_server.core.errors import ConfigError
from protocol.checks import Check, broken, ok, warning


def check_config(home: Path, loaded: Config | ConfigError) -> list[Check]:
    """One check per problem. `loaded` is the result of loading the configuration."""
    path = home / CONFIG_FILE
    if isinstance(loaded, ConfigError):
        place = str(loaded.position or path)
        return [
            broken(
                "config", str(loaded), f"correct {place}; docs/configuration-reference.md has every setting"
            )
        ]
    warnings = [
        warning("config", str(each), f"correct or remove it in {path}") for each in loaded.notices.warnings
    ]
    old = [
        warning("config", f"`{name}` is an old name", f"write `[features].{present}` in {path}")
        for name, present in loaded.notices.old_names
    ]
    if warnings or old:
        return [*warnings, *old]
    profile = f", profile {loaded.profile}" if loaded.profile else ""
    return [
        ok("config", f"{path}{profile}" if path.exists() else f"no {path}; every setting has its default")
    ]
