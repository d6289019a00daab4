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
from app_server.core.config.features import FEATURES, Features
from app_server.core.config.kinds import quote
from app_server.core.config.layers import Layered
from app_server.core.config.sections import (
    read_approval_policy,
    read_mcp_servers,
    read_otel,
    read_providers,
)
from app_server.core.config.settings_reader import SettingsTable, derive_error, plain_name
from app_server.core.config.table import ABOUT_CLIENTS
from app_server.core.config.trust import TRUST_LEVELS, trust_of
from app_server.core.config.types import (
    Config,
    HistoryConfig,
    InstructionSettings,
    LoginSettings,
    ModelSettings,
    PermissionSettings,
    ProviderConfig,
    SettingsNotices,
    SettingsWarning,
    ShellEnvironmentPolicy,
    changeable_folders,
)
from protocol.ids import sound_path
from protocol.policy import (
    AskForApproval,
    DangerFullAccess,
    ReadOnly,
    SandboxMode,
    SandboxPolicy,
    WorkspaceWrite,
)
from protocol.structs import replace

MAX_INSTRUCTIONS_BYTES = 1024 * 1024
"""Maximum size of an instructions file: no model takes more."""

MAX_WARNINGS = 20
"""More warnings would not help the user, and the search for similar names is slow."""


class ResolveInputs(Struct, frozen=True):
    """The inputs of `resolve` besides the settings."""

    home: Path
    cwd: Path
    env: Mapping[str, str]
    base_instructions: str | None = None


def resolve(layered: Layered, inputs: ResolveInputs) -> Config:
    """Check and convert merged settings. Raises ConfigError, `error deriving config: …`, for the first invalid one."""
    settings = SettingsTable(layered.settings)
    warnings: list[SettingsWarning] = []
    providers = read_providers(settings, inputs.env, warnings)
    trusted = trust_of(inputs.cwd, _trust_levels(settings.table("projects"), warnings))
    sandbox_policy = _sandbox(settings, inputs, trusted)
    config = settings.build(
        Config,
        home=inputs.home,
        cwd=inputs.cwd,
        profile=layered.profile,
        model=settings.build(ModelSettings),
        provider=_provider(settings.get("model_provider"), providers),
        providers=providers,
        permissions=_permissions(settings, sandbox_policy, trusted=trusted is True),
        instructions=settings.build(
            InstructionSettings,
            base=_base_instructions(settings, inputs, sandbox_policy),
            compact_prompt=_compact_prompt(settings, inputs, sandbox_policy),
        ),
        features=_features(settings.table("features")),
        mcp_servers=read_mcp_servers(settings),
        login=settings.build(LoginSettings),
        history=settings.table("history").build(HistoryConfig),
        otel=read_otel(settings),
    )
    notices = SettingsNotices(
        warnings=tuple(islice(chain(warnings, settings.unknown_keys()), MAX_WARNINGS)),
        old_names=tuple(sorted(layered.old_names.items())),
    )
    return replace(config, notices=notices)


def _permissions(settings: SettingsTable, policy: SandboxPolicy, *, trusted: bool) -> PermissionSettings:
    approval_policy, granular = read_approval_policy(settings)
    return settings.table(ABOUT_CLIENTS).build(
        PermissionSettings,
        approval_policy=approval_policy or AskForApproval.ON_REQUEST,
        granular=granular,
        sandbox_policy=policy,
        trusted=trusted,
        environment=settings.table("shell_environment_policy").build(ShellEnvironmentPolicy),
    )


def _provider(provider_id: str, providers: Mapping[str, ProviderConfig]) -> ProviderConfig:
    provider = providers.get(provider_id)
    if provider is None:
        raise derive_error(f"Model provider `{plain_name(provider_id)}` not found")
    return provider


def _sandbox(settings: SettingsTable, inputs: ResolveInputs, trusted: bool | None) -> SandboxPolicy:
    """Return the sandbox. By default, the workspace is writable if the user trusts it, and read-only otherwise."""
    table = settings.table("sandbox_workspace_write")
    workspace = table.build(WorkspaceWrite)
    roots = workspace.writable_roots
    try:
        writable = tuple(sound_path(os.path.normpath(_expanded(root, inputs.env))) for root in roots)
    except ValueError as error:
        raise table.invalid("writable_roots", f"is wrong: {error}") from None
    for root, path in zip(roots, writable, strict=True):
        if not os.path.isabs(path):
            raise table.invalid("writable_roots", f"must hold absolute paths, not {quote(root)}")
    workspace = replace(workspace, writable_roots=writable)
    if "sandbox_mode" not in settings:
        return workspace if trusted else ReadOnly()
    match settings.get("sandbox_mode"):
        case SandboxMode.DANGER_FULL_ACCESS:
            return DangerFullAccess()
        case SandboxMode.WORKSPACE_WRITE:
            return workspace
        case _:
            return ReadOnly()


def _features(switches: SettingsTable) -> Features:
    on = {name for name in FEATURES if switches.get(name)}
    return Features().switched(on=on, off={name for name in FEATURES if name in switches} - on)


def _trust_levels(projects: SettingsTable, warnings: list[SettingsWarning]) -> Mapping[str, str]:
    levels: dict[str, str] = {}
    for path, project in projects.tables.items():
        level = project.get("trust_level")
        if level in TRUST_LEVELS:
            levels[path] = level
        elif level is not None:
            problem = project.invalid("trust_level", "is ignored: it is neither `trusted` nor `untrusted`")
            warnings.append(SettingsWarning(problem.problem, problem.key))
    return levels


def _base_instructions(settings: SettingsTable, inputs: ResolveInputs, policy: SandboxPolicy) -> str | None:
    """Return the request's instructions, else the content of the file that the settings name."""
    older = settings.get("experimental_instructions_file")
    name = settings.get("model_instructions_file") or older
    return inputs.base_instructions or _instructions_file(name, inputs, policy)


def _compact_prompt(settings: SettingsTable, inputs: ResolveInputs, policy: SandboxPolicy) -> str | None:
    name = settings.get("experimental_compact_prompt_file")
    prompt = (settings.get("compact_prompt") or "").strip()
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
