"""The user's saved settings, for clients to display: the content of the file, without other layers and defaults."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from app_server.core.config.sections import read_approval_policy
from app_server.core.config.settings_reader import SettingError, SettingsTable
from app_server.core.config.toml_file import place_in_file, read_config_file
from protocol.policy import WorkspaceWrite, known_effort
from protocol.structs import Json

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
