"""Converts merged settings to a `Config`: checks every key, applies every default, and warns about unknown keys. The
first part reads the sections that are more than fields: models, MCP servers, telemetry, approval policy.

This module reads the catalogue and the instruction files that settings may name, and no other file: settings never come
from the workspace. The layer of a value no longer matters here.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from itertools import chain, islice
from pathlib import Path
from types import MappingProxyType

from app_server.engine.config import config_values, model_rows
from app_server.engine.config.features import FEATURES, Features
from app_server.engine.config.hook_settings import HOOKS
from app_server.engine.config.layers import Layered
from app_server.engine.config.mcp_server_settings import (
    TRANSPORTS,
    McpHttpTransport,
    McpLoginSettings,
    McpServerConfig,
    McpTransportSettings,
)
from app_server.engine.config.model_tables import ModelSettings, ModelTables
from app_server.engine.config.permission_profiles import (
    NO_DEFAULT,
    READ_ONLY,
    WORKSPACE,
    ProfileError,
    policy_named,
    profile_warnings,
)
from app_server.engine.config.profile_settings import ProfileSettings
from app_server.engine.config.project_trust import TRUST_LEVELS, trust_of
from app_server.engine.config.providers import read_providers
from app_server.engine.config.setting_types import quote, shortened
from app_server.engine.config.settings_reader import SettingsTable, derive_error, did_you_mean, plain_name
from app_server.engine.config.settings_table import ABOUT_CLIENTS
from app_server.engine.support.engine_errors import describe
from app_server.engine.support.rooted_fs import read_named
from app_server.engine.support.text_of_bytes import text_of_bytes
from app_server_protocol.engine.thread_settings import ThreadSettings
from app_server_protocol.ids import sound_path
from app_server_protocol.policy import (
    CLAUDE_FOLDER,
    PROTECTED_FOLDERS,
    AskForApproval,
    DangerFullAccess,
    FolderName,
    QuestionKinds,
    ReadOnly,
    SandboxMode,
    SandboxPolicy,
    WorkspaceWrite,
    changeable_folders,
)
from app_server_protocol.values import replace


def read_models(
    settings: SettingsTable, place: config_values.SettingsSource, policy: SandboxPolicy
) -> ModelTables:
    """Return the user's tables about models, and the content of the user's catalogue. Raises SettingError."""
    own = settings.table("models").tables
    for model, table in own.items():
        _check_table(model, table)
    tables = MappingProxyType({model: MappingProxyType(dict(table.values)) for model, table in own.items()})
    name = settings.get("model_catalog_json")
    if not name:
        return ModelTables(tables=tables)
    path = place.home / _expanded(name, place.environment)
    try:
        content = read_named(
            path, MAX_CATALOGUE_BYTES, place.home, changeable_folders(str(place.cwd), policy)
        )
    except (OSError, ValueError) as error:
        why = describe(error) if isinstance(error, OSError) else "it is too large"
        raise settings.invalid("model_catalog_json", f"cannot be read: {quote(str(path))}: {why}") from error
    try:
        model_rows.read_rows(content)
    except ValueError as error:
        raise derive_error(f"model_catalog_json {shortened(name)}: {error}", "model_catalog_json") from error
    return ModelTables(tables=tables, catalogue=content)


def _check_table(name: str, table: SettingsTable) -> None:
    """Check the lists and tables in a model's table, whose kinds the table of settings does not define."""
    try:
        model_rows.row_of(name, table.values)
    except ValueError as error:
        raise derive_error(f"models.{shortened(name)}.{error}", "models", name) from error


def read_mcp_servers(settings: SettingsTable) -> Mapping[str, McpServerConfig]:
    """Return the configured MCP servers by name."""
    tables = settings.table("mcp_servers").tables
    return MappingProxyType({name: _mcp_server(name, table) for name, table in tables.items()})


def _mcp_server(name: str, table: SettingsTable) -> McpServerConfig:
    server = table.build(
        McpServerConfig,
        name=name,
        transport=_transport(table),
        tool_approvals=MappingProxyType(
            {
                tool: entry.get("approval_mode")
                for tool, entry in table.table("tools").tables.items()
                if "approval_mode" in entry
            }
        ),
    )
    if "startup_timeout_ms" in table and "startup_timeout_sec" not in table:
        return replace(server, startup_timeout_sec=table.get("startup_timeout_ms") / 1000)
    return server


def _transport(table: SettingsTable) -> McpTransportSettings:
    kind = next((each for each in TRANSPORTS if each.KEY in table), None)
    if kind is None:
        raise table.wrong(f"needs {' or '.join(f'a `{each.KEY}`' for each in TRANSPORTS)}")
    where = f"is not supported for a server that is {kind.REACHED}"
    for key in (key for other in TRANSPORTS if other is not kind for key in table.given(other)):
        raise table.invalid(key, where)
    if kind is McpHttpTransport:
        return table.build(McpHttpTransport, login=_mcp_login(table.table("oauth")))
    if "oauth" in table.tables:
        raise table.invalid("oauth", where)
    return table.build(kind)


def _mcp_login(table: SettingsTable) -> McpLoginSettings:
    login = table.build(McpLoginSettings)
    if login.client_secret is not None and not login.client_id:
        raise table.invalid("client_secret", "needs the `client_id` that it belongs to")
    return login


def read_otel(settings: SettingsTable) -> config_values.OtelConfig:
    """Return the destination of telemetry. `exporter` is a word, or a table with one entry: the kind and its
    settings.
    """
    table = settings.table("otel")
    if "exporter" not in table.tables:
        return table.build(config_values.OtelConfig)
    kinds = table.table("exporter").tables
    if len(kinds) != 1:
        raise table.invalid("exporter", "must hold either `otlp-http` or `otlp-grpc`")
    [(kind, entry)] = kinds.items()
    return entry.build(
        config_values.OtelConfig,
        exporter=config_values.OtelExporter(kind),
        **table.fields(config_values.OtelConfig),
    )


def read_approval_policy(settings: SettingsTable) -> tuple[AskForApproval | None, QuestionKinds | None]:
    """Return the approval policy, None if it is not set, and the kinds of questions that may be asked, None if all
    may.
    """
    policy = settings.tables.get("approval_policy")
    if policy is None:
        return settings.get("approval_policy"), None
    if "granular" not in policy.tables:
        raise settings.invalid("approval_policy", "must be a word, or a table with `granular`")
    return AskForApproval.ON_REQUEST, policy.table("granular").build(QuestionKinds)


def _protected_folders(settings: SettingsTable) -> tuple[FolderName, ...]:
    claude = settings.table(HOOKS).get("claude_settings")
    return (*PROTECTED_FOLDERS, CLAUDE_FOLDER) if claude else PROTECTED_FOLDERS


MAX_INSTRUCTIONS_BYTES = 1024 * 1024
"""Maximum size of an instructions file, in bytes: no model accepts more."""

MAX_CATALOGUE_BYTES = 4 * 1024 * 1024
"""Maximum size of a catalogue of models, in bytes."""

MAX_WARNINGS = 20
"""Maximum number of warnings about settings. More would not help the user, and the search for similar names is slow."""


def resolve(
    layered: Layered, place: config_values.SettingsSource, base_instructions: str | None = None
) -> config_values.Config:
    """Check and convert merged settings for a conversation in the folder of `place`. Raises ConfigError, `error
    deriving config: …`, for the first invalid setting.
    """
    settings = SettingsTable(layered.settings)
    warnings: list[config_values.SettingsWarning] = []
    providers = read_providers(settings, place.environment, warnings)
    trusted = trust_of(place.cwd, _trust_levels(settings.table("projects"), warnings))
    sandbox_policy, profile, profiles = _sandbox(settings, place, trusted)
    warnings.extend(profile_warnings(profiles, profile))
    config = settings.build(
        config_values.Config,
        home=place.home,
        thread=_thread(settings, place.cwd, sandbox_policy, profile),
        profile=layered.profile,
        model=settings.build(ModelSettings),
        models=read_models(settings, place, sandbox_policy),
        provider=_provider(settings.get("model_provider"), providers),
        providers=providers,
        permissions=settings.table(ABOUT_CLIENTS).build(
            config_values.PermissionSettings,
            profiles=profiles,
            trusted=trusted is True,
            protected_folders=_protected_folders(settings),
            environment=settings.table("shell_environment_policy").build(
                config_values.ShellEnvironmentPolicy
            ),
        ),
        instructions=settings.build(
            config_values.InstructionSettings,
            base=base_instructions or _base_instructions(settings, place, sandbox_policy),
            compact_prompt=_compact_prompt(settings, place, sandbox_policy),
        ),
        features=_features(settings.table("features")),
        mcp_servers=read_mcp_servers(settings),
        login=settings.build(config_values.LoginSettings),
        sharing=settings.table(ABOUT_CLIENTS).build(config_values.SharingSettings),
        history=settings.table("history").build(config_values.HistoryConfig),
        otel=read_otel(settings),
    )
    notices = config_values.SettingsNotices(
        warnings=tuple(islice(chain(warnings, settings.unknown_keys()), MAX_WARNINGS)),
        old_names=tuple(sorted(layered.old_names.items())),
    )
    login = replace(config.login, claimed_variables=config.credential_variables())
    return replace(config, notices=notices, login=login)


def _thread(settings: SettingsTable, cwd: Path, policy: SandboxPolicy, profile: str | None) -> ThreadSettings:
    """Return the settings that a thread begins with; `profile` is the name of the permission profile that the sandbox
    policy is.
    """
    approval_policy, granular = read_approval_policy(settings)
    return settings.build(
        ThreadSettings,
        cwd=str(cwd),
        approval_policy=approval_policy or AskForApproval.ON_REQUEST,
        granular=granular,
        sandbox_policy=policy,
        permission_profile=profile,
    )


def _provider(
    provider_id: str, providers: Mapping[str, config_values.ProviderConfig]
) -> config_values.ProviderConfig:
    provider = providers.get(provider_id)
    if provider is None:
        similar = did_you_mean(provider_id, set(providers))
        raise derive_error(f"Model provider `{plain_name(provider_id)}` not found{similar}")
    return provider


def _sandbox(
    settings: SettingsTable, place: config_values.SettingsSource, trusted: bool | None
) -> tuple[SandboxPolicy, str | None, ProfileSettings]:
    """Return the sandbox, the name of its profile (None if `sandbox_mode` decided), and the profiles that can be chosen
    by name. By default, the workspace is writable if the user trusts it, and read-only otherwise.
    """
    folders = _folders(
        settings.table("sandbox_workspace_write"), "writable_roots", place.cli.writable_folders, place
    )
    profiles = ProfileSettings(
        tables=settings.get("permissions"),
        user_home=place.environment.get("HOME"),
        workspace=_workspace(settings.table("sandbox_workspace_write"), place),
        folders=folders,
    )
    name = settings.get("default_permissions")
    if name is None and "sandbox_mode" in settings:
        match settings.get("sandbox_mode"):
            case SandboxMode.DANGER_FULL_ACCESS:
                return DangerFullAccess(), None, profiles
            case SandboxMode.WORKSPACE_WRITE:
                return profiles.workspace, None, profiles
            case _:
                return ReadOnly(), None, profiles
    if name is None and profiles.tables:
        raise ProfileError(NO_DEFAULT)
    if name is None:
        name = WORKSPACE if trusted else READ_ONLY
    return policy_named(profiles, name), name, profiles


def _workspace(table: SettingsTable, place: config_values.SettingsSource) -> WorkspaceWrite:
    workspace = table.build(WorkspaceWrite)
    roots = (*workspace.writable_roots, *place.cli.writable_folders)
    return replace(workspace, writable_roots=_folders(table, "writable_roots", roots, place))


def _folders(
    table: SettingsTable, key: str, names: Iterable[str], place: config_values.SettingsSource
) -> tuple[str, ...]:
    """Return folders as normalised absolute paths. Raises SettingError for the setting that has them."""
    names = tuple(names)
    try:
        folders = tuple(sound_path(os.path.normpath(_expanded(name, place.environment))) for name in names)
    except ValueError as error:
        raise table.invalid(key, f"is wrong: {error}") from None
    for name, path in zip(names, folders, strict=True):
        if not os.path.isabs(path):
            raise table.invalid(key, f"must hold absolute paths, not {quote(name)}")
    return folders


def _features(switches: SettingsTable) -> Features:
    on = {name for name in FEATURES if switches.get(name)}
    return Features().switched(on=on, off={name for name in FEATURES if name in switches} - on)


def _trust_levels(
    projects: SettingsTable, warnings: list[config_values.SettingsWarning]
) -> Mapping[str, str]:
    levels: dict[str, str] = {}
    for path, project in projects.tables.items():
        level = project.get("trust_level")
        if level in TRUST_LEVELS:
            levels[path] = level
        elif level is not None:
            problem = project.invalid("trust_level", "is ignored: it is neither `trusted` nor `untrusted`")
            warnings.append(config_values.SettingsWarning(problem.problem, problem.key))
    return levels


def _base_instructions(
    settings: SettingsTable, place: config_values.SettingsSource, policy: SandboxPolicy
) -> str | None:
    """Return the content of the file that the settings name; None if they name none."""
    older = settings.get("experimental_instructions_file")
    name = settings.get("model_instructions_file") or older
    return _instructions_file(name, place, policy)


def _compact_prompt(
    settings: SettingsTable, place: config_values.SettingsSource, policy: SandboxPolicy
) -> str | None:
    name = settings.get("experimental_compact_prompt_file")
    prompt = (settings.get("compact_prompt") or "").strip()
    return prompt or _instructions_file(name, place, policy)


def _instructions_file(
    name: str | None, place: config_values.SettingsSource, policy: SandboxPolicy
) -> str | None:
    """Return the text of a user's file; None without a name. A relative name is relative to the home: a workspace must
    not supply the file.
    """
    if not name:
        return None
    path = place.home / _expanded(name, place.environment)
    shown = str(path) if str(path).isprintable() else quote(str(path))
    try:
        fences = changeable_folders(str(place.cwd), policy)
        text = text_of_bytes(read_named(path, MAX_INSTRUCTIONS_BYTES, place.home, fences)).strip()
    except FileNotFoundError as error:
        raise derive_error(f"the instructions file {shown} cannot be read: it does not exist") from error
    except OSError as error:
        raise derive_error(f"the instructions file {shown} cannot be read: {describe(error)}") from error
    except ValueError as error:
        raise derive_error(f"the instructions file {quote(name)} is no text in UTF-8 or UTF-16") from error
    if not text:
        raise derive_error(f"the instructions file {shown} is empty")
    return text


def _expanded(path: str, env: Mapping[str, str]) -> str:
    user_home = env.get("HOME")
    if user_home and (path == "~" or path.startswith("~/")):
        return user_home + path[1:]
    return path
