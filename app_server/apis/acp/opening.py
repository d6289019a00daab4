"""The configuration of a session: folder, extra folders and mode, from the settings and the request. Fast to import.

The user's configuration decides in which mode a session begins; a stored session goes on as it was.
"""

from __future__ import annotations

import os.path
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from msgspec import Struct

from app_server.apis.acp.options import (
    CONFIGURED,
    INITIAL_MODE,
    MODES,
    ModeKind,
    Permissions,
    SessionOptions,
    mode_of,
)
from app_server.core.config.fence import check_permissions
from app_server.core.config.types import Config, RequestOverrides
from app_server.core.errors import BeyondClientRights
from app_server.core.model.families import KNOWN_MODELS
from protocol.policy import DangerFullAccess, ReadOnly, SandboxPolicy, WorkspaceWrite, with_roots
from protocol.structs import replace

if TYPE_CHECKING:
    from protocol.rollout import TurnContextItem

LOCAL_PROVIDERS = frozenset({"oss", "ollama", "lmstudio"})
"""Servers of models on the user's machine, which list their own."""

MOST_DIRECTORIES = 100


LoadConfig = Callable[[RequestOverrides], Config]


class UnfitFolder(ValueError):
    """The argument says what was expected."""

    def __init__(self, text: str, field: str) -> None:
        super().__init__(text)
        self.field = field


class SessionFolders(Struct, frozen=True):
    cwd: str
    additional: Sequence[str] = ()


class SessionPlan(Struct, frozen=True):
    config: Config
    options: SessionOptions


def plan_session(
    load: LoadConfig,
    environment: Mapping[str, str],
    folders: SessionFolders,
    stored: TurnContextItem | None = None,
) -> SessionPlan:
    """`stored`: the last settings of a session that goes on. Raises UnfitFolder and ConfigError."""
    _require_absolute(folders)
    initial = None if stored is not None else _initial_mode(environment)
    config = load(
        RequestOverrides(
            cwd=folders.cwd,
            model=None if stored is None else stored.model,
            approval_policy=initial.approval_policy if initial else None,
            sandbox=initial.sandbox_mode if initial else None,
        )
    )
    own = config.permissions
    begin = Permissions(own.approval_policy, own.sandbox_policy, own.granular)
    permissions = _permissions(load, config)
    effort = config.model.effort
    if stored is not None:
        effort = stored.chosen_effort
        before = _stored_permissions(stored, permissions, begin)
        begin = before if _is_within(config, before) else begin
    mode = mode_of(begin)
    offered = {mode: begin, **permissions} if mode == CONFIGURED else {**permissions, mode: begin}
    offered = {id: _with_roots(each, folders.additional) for id, each in offered.items()}
    chosen = offered[mode]
    config = replace(
        config,
        model=replace(config.model, effort=effort),
        permissions=replace(
            own,
            approval_policy=chosen.approval_policy,
            granular=chosen.granular,
            sandbox_policy=chosen.sandbox_policy,
        ),
    )
    check_permissions(config.fence, config.permissions, str(config.cwd))
    options = SessionOptions(
        permissions=MappingProxyType(offered),
        models=_models(config),
        mode=mode,
        model=config.model.name,
        effort=effort,
    )
    return SessionPlan(config, options)


def _require_absolute(folders: SessionFolders) -> None:
    if not os.path.isabs(folders.cwd):
        raise UnfitFolder("cwd must be an absolute path", "cwd")
    extra = folders.additional
    if len(extra) > MOST_DIRECTORIES or not all(os.path.isabs(path) for path in extra):
        raise UnfitFolder("additionalDirectories must be absolute paths", "additionalDirectories")


def _initial_mode(environment: Mapping[str, str]) -> ModeKind | None:
    wanted = environment.get(INITIAL_MODE)
    return next((mode for mode in MODES if mode.id == wanted), None)


def _permissions(load: LoadConfig, config: Config) -> dict[str, Permissions]:
    """Of each mode that the user leaves to the client, with the user's settings for its sandbox."""
    workspace: SandboxPolicy = WorkspaceWrite()
    try:
        request = RequestOverrides(cwd=str(config.cwd), sandbox=workspace.mode)
        workspace = load(request).permissions.sandbox_policy
    except BeyondClientRights:
        pass  # it is not offered
    by_mode: dict[str, SandboxPolicy] = {
        policy.mode: policy for policy in (ReadOnly(), workspace, DangerFullAccess())
    }
    modes = {mode.id: Permissions(mode.approval_policy, by_mode[mode.sandbox_mode]) for mode in MODES}
    return {id: each for id, each in modes.items() if _is_within(config, each)}


def _is_within(config: Config, permissions: Permissions) -> bool:
    """Whether the user leaves a client of this session as much."""
    try:
        check_permissions(config.fence, permissions, str(config.cwd))
    except BeyondClientRights:
        return False
    return True


def _stored_permissions(
    stored: TurnContextItem, modes: Mapping[str, Permissions], configured: Permissions
) -> Permissions:
    """The mode that the session was in; folders that it could write beside its own are named anew."""
    was = Permissions(stored.approval_policy, stored.sandbox_policy, stored.granular)
    mode = mode_of(was)
    if mode in modes:
        return replace(modes[mode], granular=was.granular)
    same = [configured.sandbox_policy, *(each.sandbox_policy for each in modes.values())]
    policy = next((each for each in same if each.mode == was.sandbox_policy.mode), None)
    return configured if policy is None else replace(was, sandbox_policy=policy)


def _with_roots(permissions: Permissions, roots: Sequence[str]) -> Permissions:
    return replace(permissions, sandbox_policy=with_roots(permissions.sandbox_policy, roots))


def _models(config: Config) -> tuple[str, ...]:
    """The catalogue, with the configured model first where that does not have it; a local server lists its own."""
    known = () if config.provider.id in LOCAL_PROVIDERS else tuple(each.name for each in KNOWN_MODELS)
    return known if config.model.name in known else (config.model.name, *known)
