"""The command line and the environment of the process, parsed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from app_server.engine.support.home import home_folder
from app_server.engine.support.limits import Limits, limits_of


class ProcessOptions(Struct, frozen=True):
    home: Path
    cwd: Path
    environment: Mapping[str, str]
    settings: tuple[tuple[str, str], ...] = ()
    profile: str | None = None
    model: str | None = None
    approval_policy: str | None = None
    sandbox_mode: str | None = None
    writable_folders: tuple[str, ...] = ()
    enable: tuple[str, ...] = ()
    disable: tuple[str, ...] = ()
    limits: Limits = Limits()
    acp: bool = False
    """Whether the client speaks the Agent Client Protocol."""

    def words(self) -> list[str]:
        """Return the options of a command line with the same settings."""
        given = (
            ("--profile", self.profile),
            ("--model", self.model),
            ("--sandbox", self.sandbox_mode),
            ("--ask-for-approval", self.approval_policy),
            *(("-c", f"{key}={value}") for key, value in self.settings),
            *(("--enable", feature) for feature in self.enable),
            *(("--disable", feature) for feature in self.disable),
            *(("--add-dir", folder) for folder in self.writable_folders),
        )
        return [word for option, value in given if value is not None for word in (option, value)]


def parse_launch(given: Mapping[str, Any], environment: Mapping[str, str]) -> ProcessOptions:
    """Read the options that were given on the command line, by their names. Raises ValueError."""
    return ProcessOptions(
        home=server_home(environment),
        cwd=working_directory(),
        environment=dict(environment),
        settings=tuple(map(parse_setting, given.get("config", ()))),
        profile=given.get("profile"),
        model=given.get("model"),
        approval_policy=given.get("ask_for_approval"),
        sandbox_mode=given.get("sandbox"),
        writable_folders=tuple(given.get("add_dir", ())),
        enable=tuple(given.get("enable", ())),
        disable=tuple(given.get("disable", ())),
        limits=limits_of(environment),
        acp=given.get("command") == "acp",
    )


def parse_setting(text: str) -> tuple[str, str]:
    """Split the key and the value of `-c`. Raises ValueError."""
    key, separator, value = text.partition("=")
    if not separator or not key.strip():
        raise ValueError(f"expected key=value, got {text!r}")
    return key.strip(), value


def server_home(environment: Mapping[str, str]) -> Path:
    return Path(home_folder(environment))


def working_directory() -> Path:
    try:
        return Path(os.getcwd())
    except FileNotFoundError:  # the directory was deleted; conversations name their own
        return Path("/")
