"""Turns merged settings into a `Config`: checks every key, applies every default, and warns about unknown keys.

It reads the two instruction files that settings may name, and nothing else: settings never come from the workspace. The
layer of a value no longer matters here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from itertools import chain, islice
from pathlib import Path

from msgspec import Struct

from app_server.beneath import read_named
from app_server.core.config.features import FEATURES, LEGACY_TOGGLES, Features
from app_server.core.config.layers import ABOUT_CLIENTS, Layered
from app_server.core.config.sections import (
    OPENAI,
    read_approval_policy,
    read_history,
    read_mcp_servers,
    read_otel,
    read_providers,
    read_shell_environment,
)
from app_server.core.config.settings_reader import (
    SettingsReader,
    derive_error,
    did_you_mean,
    plain_name,
    quote,
)
from app_server.core.config.trust import TRUST_LEVELS, trust_of
from app_server.core.config.types import (
    Config,
    InstructionSettings,
    LoginSettings,
    ModelSettings,
    PermissionSettings,
    ProviderConfig,
    SettingsNotices,
    SettingsWarning,
    changeable_folders,
)
from protocol.ids import sound_path
from protocol.policy import (
    MAX_EFFORT_LENGTH,
    AskForApproval,
    DangerFullAccess,
    ReadOnly,
    ReasoningSummary,
    SandboxMode,
    SandboxPolicy,
    Verbosity,
    WorkspaceWrite,
)
from protocol.structs import replace

DEFAULT_MODEL = "gpt-5-codex"

MAX_INSTRUCTIONS_BYTES = 1024 * 1024
"""Maximum size of an instructions file: no model takes more."""

MAX_WARNINGS = 20
"""More warnings would not help the user, and the search for similar names is slow."""

LOGIN_METHODS = ("chatgpt", "api")

NOT_USED_HERE = (
    "instructions", "profile", "profiles", "tui", "file_opener", "disable_paste_burst", "notice",
    "oss_provider", "cli_auth_credentials_store", "mcp_oauth_credentials_store",
    "windows_wsl_setup_acknowledged", "check_for_update_on_startup", "disable_response_storage",
    "experimental_resume", "personality", "analytics", "feedback", "suppress_unstable_features_warning",
    "log_dir", "sqlite_home", "skills", "apps", "plugins", "ghost_snapshot", "service_tier",
    "project_root_markers", "background_terminal_max_timeout", "web_search", "model_catalog_json",
    "plan_mode_reasoning_effort", "commit_attribution", "mcp_oauth_callback_port", "tool_output_token_limit",
)  # fmt: skip
"""Settings of terminals, later versions and other programs that share the file: known, but not used here."""


class ResolveInputs(Struct, frozen=True):
    """The inputs of `resolve` besides the settings."""

    home: Path
    cwd: Path
    env: Mapping[str, str]
    base_instructions: str | None = None


def resolve(layered: Layered, inputs: ResolveInputs) -> Config:
    """Raises ConfigError, `error deriving config: …`, for the first invalid setting."""
    return resolve_settings(SettingsReader(layered.settings), layered, inputs)


def resolve_settings(table: SettingsReader, layered: Layered, inputs: ResolveInputs) -> Config:
    """As `resolve`, with a reader of the settings that the caller made."""
    table.ignore(*NOT_USED_HERE)
    warnings: list[SettingsWarning] = []
    providers = read_providers(
        table.table("model_providers"), inputs.env, warnings, table.text("openai_base_url")
    )
    provider = _provider(table.text("model_provider") or OPENAI, providers)
    trusted = trust_of(inputs.cwd, _trust_levels(table.table("projects"), warnings))
    features = _features(table, warnings)
    _check_without_effect(table)
    approval_policy, granular = read_approval_policy(table)
    sandbox_policy = _sandbox(table, inputs, trusted)
    config = Config(
        home=inputs.home,
        cwd=inputs.cwd,
        profile=layered.profile,
        model=_model(table),
        provider=provider,
        providers=providers,
        permissions=PermissionSettings(
            approval_policy=approval_policy or AskForApproval.ON_REQUEST,
            granular=granular,
            sandbox_policy=sandbox_policy,
            trusted=trusted is True,
            environment=read_shell_environment(table.table("shell_environment_policy")),
            editor_files=table.table(ABOUT_CLIENTS).flag("editor_files") is not False,
            client_rights=table.table(ABOUT_CLIENTS).flag("client_rights") is not False,
        ),
        instructions=InstructionSettings(
            base=_base_instructions(table, inputs, sandbox_policy),
            developer=table.text("developer_instructions"),
            compact_prompt=_compact_prompt(table, inputs, sandbox_policy),
            project_doc_max_bytes=_or(table.integer("project_doc_max_bytes"), 32 * 1024),
            project_doc_fallback_filenames=_file_names(table, "project_doc_fallback_filenames"),
        ),
        features=features,
        mcp_servers=read_mcp_servers(table.table("mcp_servers")),
        login=_login(table),
        notify=table.texts("notify") or (),
        history=read_history(table.table("history")),
        otel=read_otel(table.table("otel")),
    )
    notices = SettingsNotices(
        warnings=tuple(islice(chain(warnings, table.unknown_keys()), MAX_WARNINGS)),
        old_names=tuple(sorted(layered.old_names.items())),
    )
    return replace(config, notices=notices)


def _model(table: SettingsReader) -> ModelSettings:
    return ModelSettings(
        name=_filled(table, "model") or DEFAULT_MODEL,
        review_model=_filled(table, "review_model"),
        context_window=table.integer("model_context_window", minimum=1),
        max_output_tokens=table.integer("model_max_output_tokens", minimum=1),
        auto_compact_token_limit=table.integer("model_auto_compact_token_limit", minimum=1),
        effort=table.word("model_reasoning_effort", MAX_EFFORT_LENGTH),
        summary=table.choice("model_reasoning_summary", ReasoningSummary) or ReasoningSummary.AUTO,
        verbosity=table.choice("model_verbosity", Verbosity),
        supports_reasoning_summaries=table.flag("model_supports_reasoning_summaries"),
        show_raw_reasoning=table.flag("show_raw_agent_reasoning") or False,
    )


def _login(table: SettingsReader) -> LoginSettings:
    forced = table.text("forced_login_method")
    if forced not in (None, *LOGIN_METHODS):
        raise table.invalid("forced_login_method", "must be one of `chatgpt`, `api`")
    return LoginSettings(forced_method=forced, workspace_id=table.text("forced_chatgpt_workspace_id"))


def _check_without_effect(table: SettingsReader) -> None:
    """Settings that other programs use. They change nothing here; a value of a wrong kind is an error all the same."""
    table.flag("hide_agent_reasoning")
    for key in ("chatgpt_base_url", "model_reasoning_summary_format"):
        table.text(key)


def _provider(provider_id: str, providers: Mapping[str, ProviderConfig]) -> ProviderConfig:
    provider = providers.get(provider_id)
    if provider is None:
        raise derive_error(f"Model provider `{plain_name(provider_id)}` not found")
    return provider


def _sandbox(table: SettingsReader, inputs: ResolveInputs, trusted: bool | None) -> SandboxPolicy:
    """By default, the workspace is writable if the user trusts it, and read-only otherwise."""
    settings = table.table("sandbox_workspace_write")
    roots = settings.texts("writable_roots") or ()
    try:
        writable = tuple(sound_path(os.path.normpath(_expanded(root, inputs.env))) for root in roots)
    except ValueError as error:
        raise settings.invalid("writable_roots", f"is wrong: {error}") from None
    relative = next(
        (root for root, path in zip(roots, writable, strict=True) if not os.path.isabs(path)), None
    )
    if relative is not None:
        raise settings.invalid("writable_roots", f"must hold absolute paths, not {quote(relative)}")
    workspace = WorkspaceWrite(
        writable_roots=writable,
        network_access=settings.flag("network_access") or False,
        exclude_tmpdir_env_var=settings.flag("exclude_tmpdir_env_var") or False,
        exclude_slash_tmp=settings.flag("exclude_slash_tmp") or False,
    )
    match table.choice("sandbox_mode", SandboxMode):
        case SandboxMode.DANGER_FULL_ACCESS:
            return DangerFullAccess()
        case SandboxMode.WORKSPACE_WRITE:
            return workspace
        case SandboxMode.READ_ONLY:
            return ReadOnly()
        case None:
            return workspace if trusted else ReadOnly()


def _features(table: SettingsReader, warnings: list[SettingsWarning]) -> Features:
    tools = table.table("tools")
    for key in ("web_search", "web_search_request", "view_image"):
        tools.flag(key)
        table.flag(f"tools_{key}")
    for key in LEGACY_TOGGLES:
        table.flag(key)
    switches = table.table("features")
    on: set[str] = set()
    off: set[str] = set()
    for name in switches.keys():  # noqa: SIM118 - a SettingsReader is not a dict
        if name in FEATURES:
            (on if switches.flag(name) else off).add(name)
        else:
            switches.ignore(name)
            if len(warnings) < MAX_WARNINGS:
                text = f"unknown feature {quote(name)} is ignored{did_you_mean(name, set(FEATURES))}"
                warnings.append(SettingsWarning(text, ("features", name)))
    return Features().switched(on=on, off=off)


def _trust_levels(table: SettingsReader, warnings: list[SettingsWarning]) -> Mapping[str, str]:
    levels: dict[str, str] = {}
    for path, entry in table.tables().items():
        level = entry.text("trust_level")
        if level is not None and level in TRUST_LEVELS:
            levels[path] = level
        elif level is not None:
            text = f"`{entry.name('trust_level')}` is ignored: it is neither `trusted` nor `untrusted`"
            warnings.append(SettingsWarning(text, ("projects", path, "trust_level")))
    return levels


def _base_instructions(table: SettingsReader, inputs: ResolveInputs, policy: SandboxPolicy) -> str | None:
    """The request's instructions, else the content of the file that the settings name."""
    older = table.text("experimental_instructions_file")
    name = table.text("model_instructions_file") or older
    return inputs.base_instructions or _instructions_file(name, inputs, policy)


def _compact_prompt(table: SettingsReader, inputs: ResolveInputs, policy: SandboxPolicy) -> str | None:
    name = table.text("experimental_compact_prompt_file")
    prompt = (table.text("compact_prompt") or "").strip()
    return prompt or _instructions_file(name, inputs, policy)


def _instructions_file(name: str | None, inputs: ResolveInputs, policy: SandboxPolicy) -> str | None:
    """Read a user's file. A relative name is relative to the home: a workspace must not supply it."""
    if not name:
        return None
    path = inputs.home / _expanded(name, inputs.env)
    shown = str(path) if str(path).isprintable() else quote(str(path))
    try:
        fences = changeable_folders(inputs.cwd, policy)
        text = read_named(path, MAX_INSTRUCTIONS_BYTES, inputs.home, fences).decode("utf-8-sig").strip()
    except FileNotFoundError as error:
        raise derive_error(f"the instructions file {shown} cannot be read: it does not exist") from error
    except OSError as error:
        reason = (error.strerror or "unknown").lower()
        raise derive_error(f"the instructions file {shown} cannot be read: {reason}") from error
    except ValueError as error:
        raise derive_error(f"the instructions file {quote(name)} is not valid UTF-8 text") from error
    if not text:
        raise derive_error(f"the instructions file {shown} is empty")
    return text


def _expanded(path: str, env: Mapping[str, str]) -> str:
    user_home = env.get("HOME")
    if user_home and (path == "~" or path.startswith("~/")):
        return user_home + path[1:]
    return path


def _file_names(table: SettingsReader, key: str) -> tuple[str, ...]:
    """Names without a folder: project documents are never read from elsewhere."""
    names = table.texts(key) or ()
    for name in names:
        if "/" in name or "\0" in name or name in ("..", "."):
            raise table.invalid(key, f"must hold plain file names, not {quote(name)}")
    return tuple(name for name in names if name)


def _filled(table: SettingsReader, key: str) -> str | None:
    value = table.text(key)
    if value is not None and not value.strip():
        raise table.invalid(key, "must not be empty")
    return value


def _or(value: int | None, default: int) -> int:
    return default if value is None else value
