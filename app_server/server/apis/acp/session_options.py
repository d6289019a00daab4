"""The options of a session: the values that can be chosen, the current values, and the configuration that they begin
with.

The mode is the agent's permissions: approval policy and sandbox together. Clients are sent it twice, as a mode and as
an option, which are always the same. The user's configuration decides in which mode a session begins; a stored session
goes on in the mode that it had.
"""

from __future__ import annotations

import os.path
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from app_server.engine.config.config_values import Config, RequestOverrides
from app_server.engine.config.model_rows import EFFORT_DESCRIPTIONS, ModelRow
from app_server.engine.config.permission_profiles import BUILT_IN
from app_server.engine.config.settings_service import UserSettings
from app_server.engine.model.catalogue import find_model
from app_server.engine.support.engine_errors import BeyondClientRights
from app_server_protocol.acp.sessions import (
    ConfigOptionValue,
    SessionConfigOption,
    SessionMode,
    SessionModeState,
)
from app_server_protocol.encoding import Json
from app_server_protocol.engine.thread_settings import (
    RIGHTS,
    UNSET,
    SettingsPatch,
    SystemPrompt,
    ThreadSettings,
)
from app_server_protocol.policy import (
    AskForApproval,
    DangerFullAccess,
    PermissionProfile,
    ReadOnly,
    SandboxPolicy,
    WorkspaceWrite,
    with_roots,
)
from app_server_protocol.rpc_errors import invalid_params
from app_server_protocol.values import replace

if TYPE_CHECKING:
    from app_server.engine.model.model_facts import ModelFacts
    from app_server_protocol.rollout import TurnContextItem

MODE: Final = "mode"
MODEL: Final = "model"
EFFORT: Final = "reasoning_effort"
CONFIGURED: Final = "configured"

INITIAL_MODE: Final = "INITIAL_AGENT_MODE"
"""Environment variable by which hosts name the mode in which sessions begin."""


NOT_RESTORED: Final = ("mode", "service_tier")
"""Settings that another API may have given a stored session. They are not restored, because clients of this protocol
could not change them back.
"""


class PermissionMode(Struct, frozen=True):
    id: str
    name: str
    description: str
    approval_policy: AskForApproval
    sandbox_mode: str


MODES: Final = (
    PermissionMode(
        "read-only",
        "Read only",
        "Reads files; asks before it changes any, or runs what changes some.",
        AskForApproval.ON_REQUEST,
        "read-only",
    ),
    PermissionMode(
        "workspace-write",
        "Workspace",
        "Changes files of the workspace and runs commands there; asks for more.",
        AskForApproval.ON_REQUEST,
        "workspace-write",
    ),
    PermissionMode(
        "agent-full-access",
        "Full access",
        "Does everything without asking and without a sandbox.",
        AskForApproval.NEVER,
        "danger-full-access",
    ),
)


def mode_of(settings: ThreadSettings) -> str:
    """Return the mode that a session with these settings is in. Only the kind of the sandbox counts, because the roots
    of a workspace come from the user's configuration.
    """
    for mode in MODES:
        if (settings.approval_policy, settings.sandbox_policy.mode) == (
            mode.approval_policy,
            mode.sandbox_mode,
        ):
            return mode.id
    return CONFIGURED


class SessionOptions(Struct, frozen=True, kw_only=True):
    """Options of a session, offered and chosen. Values are replaced, never changed."""

    permissions: Mapping[str, SettingsPatch]
    """Changes of the session's rights by mode, in the order in which the modes are offered."""
    models: tuple[str, ...]
    """Models in the order in which they are offered, the chosen one among them."""
    mode: str
    model: str
    effort: str | None = None
    rows: Mapping[str, ModelRow] = MappingProxyType({})
    """Facts about models that the bundled catalogue does not have, by model."""

    # --- choosing
    def with_mode(self, id: str) -> SessionOptions:
        """Return the options with another mode. Raises RpcError."""
        if id not in self.permissions:
            raise invalid_params(f"unknown mode: {id[:100]}", "modeId")
        return replace(self, mode=id)

    def with_option(self, id: str, value: str | bool) -> SessionOptions:
        """Return the options with another value of one option. Raises RpcError."""
        option = next((each for each in self.config_options() if each.id == id), None)
        if option is None:
            raise invalid_params(f"unknown option: {id[:100]}", "value")
        if value not in [each.value for each in option.options] or not isinstance(value, str):
            raise invalid_params(f"{id} has no value {str(value)[:100]}", "value")
        if id == MODE:
            return self.with_mode(value)
        if id == MODEL:
            chosen = replace(self, model=value)
            fits = self.effort is None or self.effort in self._row(value).efforts
            return chosen if fits else replace(chosen, effort=None)
        return replace(self, effort=value)

    def with_model(self, model: str) -> SessionOptions:
        """Return the options with a model chosen, whether it was offered or not."""
        offered = self.models if model in self.models else (*self.models, model)
        return replace(self, models=offered, model=model)

    def of(self, facts: ModelFacts, model: str) -> SessionOptions:
        """Return the options with the models of a provider, `model` among them and chosen."""
        rows = {row.slug: row for row in facts.listed() if not row.hidden}
        rows = {model: rows.get(model) or facts.row(model), **rows} if model not in rows else rows
        kept = {model, *[name for name in rows if name != model][: MOST_MODELS - 1]}
        return replace(self, models=tuple(name for name in rows if name in kept), model=model, rows=rows)

    def _row(self, name: str) -> ModelRow:
        return self.rows.get(name) or find_model(name)

    # --- shapes for clients
    def shown(self) -> dict[str, Json]:
        """Return the fields of the responses that open a session."""
        return {"modes": self.modes(), "config_options": self.config_options()}

    def modes(self) -> SessionModeState:
        """Return the modes, for clients that do not support options."""
        modes = tuple(SessionMode(id=id, name=name, description=about) for id, name, about in self._modes())
        return SessionModeState(current_mode_id=self.mode, available_modes=modes)

    def config_options(self) -> tuple[SessionConfigOption, ...]:
        """Return all options, the most important first."""
        modes = tuple(_value(*mode) for mode in self._modes())
        about = "What the agent may do"
        mode = SessionConfigOption(
            id=MODE, name="Mode", description=about, category=MODE, current_value=self.mode, options=modes
        )
        models = tuple(_model_value(name, self._row(name)) for name in self.models)
        model = SessionConfigOption(
            id=MODEL, name="Model", category=MODEL, current_value=self.model, options=models
        )
        efforts = tuple(
            _value(each, each.capitalize(), EFFORT_DESCRIPTIONS.get(each)) for each in self._efforts()
        )
        if not efforts:
            return mode, model
        effort = SessionConfigOption(
            id=EFFORT,
            name="Reasoning effort",
            category="thought_level",
            current_value=self._current_effort(),
            options=efforts,
        )
        return mode, model, effort

    def _modes(self) -> list[tuple[str, str, str]]:
        named = {mode.id: (mode.name, mode.description) for mode in MODES}
        own = _own_mode(self.permissions.get(CONFIGURED))
        return [(id, *named.get(id, own)) for id in self.permissions]

    def _current_effort(self) -> str:
        return str(self.effort or self._row(self.model).usual_effort)

    def _efforts(self) -> list[str]:
        """Return the reasoning efforts to choose from; if there are any, the current one is among them."""
        known, current = list(self._row(self.model).efforts), self._current_effort()
        return known if not known or current in known else [current, *known]


def _own_mode(permissions: SettingsPatch | None) -> tuple[str, str]:
    """Return name and description of a mode that is none of the built-in ones: those of its permission profile, if it
    has one.
    """
    policy = None if permissions is None else permissions.sandbox_policy
    if isinstance(policy, PermissionProfile):
        return policy.id, "What the permission profile of this name allows."
    return "Configured", "As the configuration or the stored session says."


def _model_value(name: str, row: ModelRow) -> ConfigOptionValue:
    is_row = row.slug == name
    return _value(name, row.name if is_row else name, row.description if is_row else None)


def _value(value: str, name: str, description: str | None) -> ConfigOptionValue:
    return ConfigOptionValue(value=value, name=name, description=description)


MOST_MODELS = 60
"""Maximum number of models that a session offers: clients show them in a menu."""

MOST_DIRECTORIES = 100


class SessionPlan(Struct, frozen=True):
    config: Config
    options: SessionOptions
    system_prompt: SystemPrompt | None = None
    """Instructions that the client gives now; None if it gives none, and those that it gave before stay."""


def plan_session(
    source: UserSettings, cwd: str, additional: Sequence[str], stored: TurnContextItem | None
) -> SessionPlan:
    """Return the settings with which a session begins; it may write in the `additional` folders, too. `stored` are the
    last settings of a session that is loaded again. Raises RpcError and ConfigError.
    """
    if not os.path.isabs(cwd):
        raise invalid_params("cwd must be an absolute path", "cwd")
    if len(additional) > MOST_DIRECTORIES or not all(map(os.path.isabs, additional)):
        raise invalid_params("additionalDirectories must be absolute paths", "additionalDirectories")
    asked, sandbox = SettingsPatch(cwd=cwd), None
    if stored is not None:
        asked = asked.over(stored.patch().without((*RIGHTS, *NOT_RESTORED)))
    elif (initial := _initial_mode(source.environment)) is not None:
        asked, sandbox = replace(asked, approval_policy=initial.approval_policy), initial.sandbox_mode
    config = source.load(RequestOverrides(patch=asked, sandbox=sandbox))
    begin = config.thread.part(RIGHTS)
    permissions = _permissions(source, config)
    if stored is not None:
        before = _stored_permissions(stored, permissions, begin)
        begin = before if _is_within(source, config, before) else begin
    mode = mode_of(config.thread.patched(begin))
    offered = {mode: begin, **permissions} if mode == CONFIGURED else {**permissions, mode: begin}
    offered = {id: _with_roots(each, additional) for id, each in offered.items()}
    config = replace(config, thread=config.thread.patched(offered[mode]))
    source.check(config, config.thread)
    options = SessionOptions(
        permissions=MappingProxyType(offered),
        models=(config.thread.model,) if config.thread.model else (),
        mode=mode,
        model=config.thread.model,
        effort=config.thread.effort,
    )
    return SessionPlan(config, options)


def _initial_mode(environment: Mapping[str, str]) -> PermissionMode | None:
    wanted = environment.get(INITIAL_MODE)
    return next((mode for mode in MODES if mode.id == wanted), None)


def _with_roots(permissions: SettingsPatch, roots: Sequence[str]) -> SettingsPatch:
    policy = permissions.sandbox_policy
    return permissions if policy is UNSET else replace(permissions, sandbox_policy=with_roots(policy, roots))


def _permissions(source: UserSettings, config: Config) -> dict[str, SettingsPatch]:
    """Return the rights of each mode that clients may choose, with the user's settings for its sandbox."""
    workspace: SandboxPolicy = WorkspaceWrite()
    try:
        request = RequestOverrides(patch=SettingsPatch(cwd=config.thread.cwd), sandbox=workspace.mode)
        workspace = source.load(request).thread.sandbox_policy
    except BeyondClientRights:
        pass  # the mode is not offered
    by_mode: dict[str, SandboxPolicy] = {
        policy.mode: policy for policy in (ReadOnly(), workspace, DangerFullAccess())
    }
    modes = {
        mode.id: SettingsPatch(
            approval_policy=mode.approval_policy, sandbox_policy=by_mode[mode.sandbox_mode]
        )
        for mode in MODES
    }
    return {id: each for id, each in modes.items() if _is_within(source, config, each)}


def _is_within(source: UserSettings, config: Config, permissions: SettingsPatch) -> bool:
    """Return whether the user lets a client choose these permissions for this session."""
    try:
        source.check(config, config.thread.patched(permissions))
    except BeyondClientRights:
        return False
    return True


def _stored_permissions(
    stored: TurnContextItem, modes: Mapping[str, SettingsPatch], configured: SettingsPatch
) -> SettingsPatch:
    """Return the rights that the stored session had. Its additional folders are not restored, because the request
    names them again.
    """
    if stored.profile_id in (None, *BUILT_IN):
        for like in (configured, *modes.values()):
            if like.sandbox_policy is not UNSET and like.sandbox_policy.mode == stored.sandbox_policy.mode:
                return replace(like, approval_policy=stored.approval_policy, granular=stored.granular)
    return configured
