"""The user's file, as clients are shown it and write it: its settings in force, its own content, edits of it. Import it
late: most servers do neither.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from app_server.core.config.edit import setting_edit
from app_server.core.config.effective import EffectiveSettings, effective_settings
from app_server.core.config.resolve import read_approval_policy
from app_server.core.config.settings_reader import SettingError, SettingsTable
from app_server.core.config.skill_switches import SkillSwitch
from app_server.core.config.toml_file import CONFIG_FILE, place_in_file, read_config_file
from app_server.core.config.types import SettingsPlace, WriteOutcome
from app_server.core.config.write import set_default_model, write_settings, write_skill_switch
from app_server.core.errors import ConfigError, InvalidSettings
from app_server.core.real_path import real_path
from app_server.core.threads import run_in_thread
from protocol.policy import WorkspaceWrite, known_effort
from protocol.structs import Json

if TYPE_CHECKING:
    import anyio

    from protocol.policy import ReasoningEffort

OF_PROFILES = ("model", "model_provider", "model_reasoning_summary", "model_verbosity", "chatgpt_base_url")
AT_THE_TOP = (
    *("sandbox_mode", "forced_chatgpt_workspace_id", "forced_login_method", "profile"),
    *("model", "model_reasoning_summary", "model_verbosity"),
)


def load_saved_config(home: Path) -> Mapping[str, Json]:
    """Return what the file says, in the fields of `UserSavedConfig`. Raises ConfigError if a setting is invalid."""
    try:
        return _saved(SettingsTable(read_config_file(home)))
    except SettingError as error:
        raise SettingError(error.problem, error.key, place_in_file(home, error.key)) from error


def _saved(settings: SettingsTable) -> Mapping[str, Json]:
    return {
        **_shown(settings, AT_THE_TOP),
        "sandbox_settings": _sandbox_settings(settings),
        "tools": _tools(settings),
        "profiles": {name: _shown(profile, OF_PROFILES) for name, profile in settings.profiles().items()},
    }


def _shown(settings: SettingsTable, names: tuple[str, ...]) -> Mapping[str, Json]:
    return {
        **{name: settings.get(name) if name in settings else None for name in names},
        "approval_policy": read_approval_policy(settings)[0],
        "model_reasoning_effort": known_effort(settings.get("model_reasoning_effort")),
    }


def _sandbox_settings(settings: SettingsTable) -> Mapping[str, Json] | None:
    table = settings.tables.get("sandbox_workspace_write")
    if table is None:
        return None
    shown = table.build(WorkspaceWrite)
    return {name: getattr(shown, name) for name in WorkspaceWrite.__struct_fields__ if name != "mode"}


def _tools(settings: SettingsTable) -> Mapping[str, Json] | None:
    tools = settings.tables.get("tools")
    if tools is None:
        return None
    web_search = tools.get("web_search")
    return {
        "web_search": tools.get("web_search_request") if web_search is None else web_search,
        "view_image": tools.get("view_image"),
    }


MOST_EDITS = 1000
"""Of one request. Each may be a whole table."""


class SettingsFile(Struct, frozen=True):
    """Shows and writes the settings of one home."""

    place: SettingsPlace
    writes: anyio.Lock
    """Keeps the order of one server's writes; others are kept out by a lock on the home."""

    def shown(self) -> EffectiveSettings:
        """Return the settings that count with their layers, all without credentials. Raises ConfigError."""
        try:
            return effective_settings(read_config_file(self.place.home), self.place.cli).without_credentials()
        except RecursionError as error:
            raise ConfigError("failed to load configuration: it is nested too deeply") from error

    def saved(self) -> Mapping[str, Json]:
        """Return what the file says, in the fields of `UserSavedConfig`. Raises ConfigError."""
        return load_saved_config(self.place.home)

    async def write(
        self, edits: Sequence[tuple[str, Json, bool]], expected_version: str | None = None
    ) -> WriteOutcome:
        """Make all edits or none: each a key, its new value, and whether a table is laid over the one that is there.

        Raises VersionConflict, InvalidSettings, or ConfigError where the file cannot be changed.
        """
        if len(edits) > MOST_EDITS:
            raise InvalidSettings(f"at most {MOST_EDITS} edits are made at once")
        changes = [setting_edit(key, value, merge=merge) for key, value, merge in edits]
        async with self.writes:
            return await run_in_thread(write_settings, self.place, changes, expected_version)

    async def set_default_model(self, model: str | None, effort: ReasoningEffort | None) -> None:
        """Write the model and effort that conversations start with; None removes one. Raises ConfigError."""
        async with self.writes:
            await run_in_thread(set_default_model, self.place.home, model, effort)

    async def switch_skill(self, name: str | None, path: str | None, *, enabled: bool) -> None:
        """Switch a skill on or off, by its name or by the path of its file. Raises ConfigError."""
        async with self.writes:
            await run_in_thread(write_skill_switch, self.place.home, SkillSwitch(name, path, enabled))

    def is_users_file(self, path: str) -> bool:
        """Return whether a path names the user's file: by its name, not by where a link may lead."""
        folder, name = os.path.split(os.path.normpath(path))
        if not os.path.isabs(path) or name != CONFIG_FILE:
            return False
        return folder == os.path.normpath(self.place.home) or real_path(folder) == real_path(self.place.home)
