"""The user's saved settings, for clients to display: the content of the file, without other layers and defaults."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from app_server.core.config.resolve import LOGIN_METHODS
from app_server.core.config.sections import read_approval_policy
from app_server.core.config.settings_reader import SettingError, SettingsReader
from app_server.core.config.toml_file import place_in_file, read_config_file
from protocol.policy import (
    MAX_EFFORT_LENGTH,
    AskForApproval,
    ReasoningSummary,
    SandboxMode,
    Verbosity,
    known_effort,
)
from protocol.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedProfile:
    model: str | None
    model_provider: str | None
    approval_policy: AskForApproval | None
    model_reasoning_effort: str | None
    model_reasoning_summary: ReasoningSummary | None
    model_verbosity: Verbosity | None
    chatgpt_base_url: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedTools:
    web_search: bool | None
    view_image: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedSandboxSettings:
    writable_roots: tuple[str, ...]
    network_access: bool
    exclude_tmpdir_env_var: bool
    exclude_slash_tmp: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedConfig:
    """The fields are those of `UserSavedConfig` on the wire, in snake_case."""

    approval_policy: AskForApproval | None
    sandbox_mode: SandboxMode | None
    sandbox_settings: SavedSandboxSettings | None
    forced_chatgpt_workspace_id: str | None
    forced_login_method: str | None
    model: str | None
    model_reasoning_effort: str | None
    model_reasoning_summary: ReasoningSummary | None
    model_verbosity: Verbosity | None
    tools: SavedTools | None
    profile: str | None
    profiles: Mapping[str, SavedProfile]


def load_saved_config(home: Path) -> SavedConfig:
    """Raises ConfigError if the file or one of these settings is invalid."""
    try:
        return _saved(SettingsReader(read_config_file(home)))
    except SettingError as error:
        raise SettingError(error.problem, error.key, place_in_file(home, error.key)) from error


def _saved(table: SettingsReader) -> SavedConfig:
    forced = table.text("forced_login_method")
    if forced not in (None, *LOGIN_METHODS):
        raise table.invalid("forced_login_method", "must be one of `chatgpt`, `api`")
    return SavedConfig(
        approval_policy=read_approval_policy(table)[0],
        sandbox_mode=table.choice("sandbox_mode", SandboxMode),
        sandbox_settings=_sandbox_settings(table),
        forced_chatgpt_workspace_id=table.text("forced_chatgpt_workspace_id"),
        forced_login_method=forced,
        model=table.text("model"),
        model_reasoning_effort=known_effort(table.word("model_reasoning_effort", MAX_EFFORT_LENGTH)),
        model_reasoning_summary=table.choice("model_reasoning_summary", ReasoningSummary),
        model_verbosity=table.choice("model_verbosity", Verbosity),
        tools=_tools(table),
        profile=table.text("profile"),
        profiles={name: _profile(entry) for name, entry in table.table("profiles").tables().items()},
    )


def _sandbox_settings(table: SettingsReader) -> SavedSandboxSettings | None:
    if not table.has("sandbox_workspace_write"):
        return None
    settings = table.table("sandbox_workspace_write")
    return SavedSandboxSettings(
        writable_roots=settings.texts("writable_roots") or (),
        network_access=settings.flag("network_access") or False,
        exclude_tmpdir_env_var=settings.flag("exclude_tmpdir_env_var") or False,
        exclude_slash_tmp=settings.flag("exclude_slash_tmp") or False,
    )


def _tools(table: SettingsReader) -> SavedTools | None:
    if not table.has("tools"):
        return None
    tools = table.table("tools")
    web_search = tools.flag("web_search")
    return SavedTools(
        web_search=tools.flag("web_search_request") if web_search is None else web_search,
        view_image=tools.flag("view_image"),
    )


def _profile(table: SettingsReader) -> SavedProfile:
    return SavedProfile(
        model=table.text("model"),
        model_provider=table.text("model_provider"),
        approval_policy=read_approval_policy(table)[0],
        model_reasoning_effort=known_effort(table.word("model_reasoning_effort", MAX_EFFORT_LENGTH)),
        model_reasoning_summary=table.choice("model_reasoning_summary", ReasoningSummary),
        model_verbosity=table.choice("model_verbosity", Verbosity),
        chatgpt_base_url=table.text("chatgpt_base_url"),
    )
