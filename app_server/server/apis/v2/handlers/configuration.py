"""The configuration as clients see it, the permission profiles that can be chosen, and writing settings into the user's
file; clients distinguish refused writes by a code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy

from pydantic import ValidationError

from app_server.engine.config.config_values import Config, RequestOverrides
from app_server.engine.config.effective import LayerKind, Overridden, SettingsLayer
from app_server.engine.config.hook_settings import HOOKS
from app_server.engine.config.permission_profiles import (
    READ_ONLY,
    ListedProfile,
    ProfileError,
    listed_profiles,
    policy_named,
)
from app_server.engine.config.settings_service import UserSettings
from app_server.engine.hooks import listed_hooks
from app_server.engine.support.engine_errors import BeyondClientRights, InvalidSettings, VersionConflict
from app_server.server.apis.contexts import ConnectionContext
from app_server.server.apis.router import Route, constant, route
from app_server.server.apis.v2.v2_errors import page_by_position
from app_server_protocol.encoding import Json
from app_server_protocol.jsonrpc import INVALID_REQUEST
from app_server_protocol.rpc_errors import RpcError
from app_server_protocol.v2 import config as wire
from app_server_protocol.v2 import settings as choices
from app_server_protocol.values import replace

MODES = choices.CollaborationModeListResponse(
    data=(
        choices.CollaborationModeMask(name="Plan", mode=choices.ModeKind.PLAN, reasoning_effort="medium"),
        choices.CollaborationModeMask(name="Default", mode=choices.ModeKind.DEFAULT),
    )
)
NO_REQUIREMENTS = wire.ConfigRequirementsReadResponse(requirements=None)
"""Response of `configRequirements/read`: this server reads no file of an administrator."""


async def config_read(context: ConnectionContext, params: wire.ConfigReadParams) -> wire.ConfigReadResponse:
    """Return the settings; settings with which no thread could begin are an error here, too. Raises ConfigError."""
    source = context.config
    source.load(RequestOverrides.in_folder(params.cwd))
    found = source.file.shown()
    layers = tuple(
        wire.ConfigLayer(name=layer_name(layer, source), version=layer.version, config=layer.settings)
        for layer in found.layers
    )
    return wire.ConfigReadResponse(
        config=shown_config(found.settings),
        origins={
            key: wire.ConfigLayerMetadata(name=layer_name(layer, source), version=layer.version)
            for key, layer in found.origins.items()
        },
        layers=layers if params.include_layers else None,
    )


async def permission_profile_list(
    context: ConnectionContext, params: choices.PermissionProfileListParams
) -> choices.PermissionProfileListResponse:
    """List the built-in profiles and the user's. A profile is shown as not allowed if it has a mistake, or gives more
    rights than the user lets clients have. Raises ConfigError.
    """
    source = context.config
    config = _with_any_profile(source, params.cwd)
    profiles = [
        choices.PermissionProfileSummary(
            id=each.id, description=each.description, allowed=_is_allowed(source, config, each)
        )
        for each in listed_profiles(config.permissions.profiles)
    ]
    page, next_cursor = page_by_position(profiles, params.cursor, params.limit)
    return choices.PermissionProfileListResponse(data=page, next_cursor=next_cursor)


def _with_any_profile(source: UserSettings, cwd: str | None) -> Config:
    """Return the configuration, with a built-in profile if the configured one cannot be chosen."""
    asked = RequestOverrides.in_folder(cwd)
    try:
        return source.load(asked)
    except ProfileError:
        return source.load(replace(asked, patch=replace(asked.patch, permission_profile=READ_ONLY)))


def _is_allowed(source: UserSettings, config: Config, profile: ListedProfile) -> bool:
    if profile.problem is not None:
        return False
    policy = policy_named(config.permissions.profiles, profile.id)
    try:
        source.check(config, replace(config.thread, sandbox_policy=policy))
    except BeyondClientRights:
        return False
    return True


def shown_config(settings: Mapping[str, Json]) -> wire.ShownConfig:
    """Return the settings in the shape that clients know. A setting of another shape is left out, such as
    `tools.web_search`, which is a switch here.
    """
    fitting: dict[str, Json] = deepcopy({**settings})
    while True:
        try:
            return wire.ShownConfig.model_validate(fitting)
        except ValidationError as error:
            for problem in error.errors(include_url=False, include_input=False):
                _leave_out(fitting, [str(part) for part in problem["loc"]])


def _leave_out(table: dict[str, Json], path: list[str]) -> None:
    """Remove the innermost setting on this path that exists."""
    parent, key = table, path[0]
    for part in path[1:]:
        inner = parent.get(key)
        if not isinstance(inner, dict) or part not in inner:
            break
        parent, key = inner, part
    parent.pop(key, None)


def layer_name(layer: SettingsLayer, source: UserSettings) -> wire.ConfigLayerSource:
    match layer.kind:
        case LayerKind.USER | LayerKind.PROFILE:
            return wire.UserConfigLayerSource(file=str(source.path), profile=layer.profile)
        case LayerKind.COMMAND_LINE:
            return wire.SessionFlagsConfigLayerSource()


async def config_value_write(
    context: ConnectionContext, params: wire.ConfigValueWriteParams
) -> wire.ConfigWriteResponse:
    return await _write(context, (params,), params.file_path, params.expected_version)


async def config_batch_write(
    context: ConnectionContext, params: wire.ConfigBatchWriteParams
) -> wire.ConfigWriteResponse:
    """Write several settings. `reloadUserConfig` has no effect: threads keep the settings with which they began, and
    consent to hooks counts from the next turn in any case.
    """
    return await _write(context, params.edits, params.file_path, params.expected_version)


async def model_provider_default_set(
    context: ConnectionContext, params: wire.ModelProviderDefaultSetParams
) -> wire.ConfigWriteResponse:
    context.require_client_rights("modelProvider/default/set")
    if params.provider_id not in context.config.load().providers:
        message = f"Model provider `{params.provider_id[:100]}` is not configured."
        raise _refused("configValidationError", message, "providerId")
    edit = wire.ConfigEdit(key_path="model_provider", value=params.provider_id, merge_strategy="replace")
    return await _write(context, (edit,), None, None)


async def _write(
    context: ConnectionContext,
    edits: Sequence[wire.ConfigEdit],
    file_path: str | None,
    expected_version: str | None,
) -> wire.ConfigWriteResponse:
    source = context.config
    if file_path is not None and not source.file.is_users_file(file_path):
        raise _refused("configLayerReadonly", "Only writes to the user config are allowed", "filePath")
    wanted = [(edit.key_path, edit.value, edit.merge_strategy == "upsert") for edit in edits]
    try:
        outcome = await source.file.write(_with_files(context, wanted), expected_version)
    except VersionConflict as conflict:
        raise _refused("configVersionConflict", str(conflict), "expectedVersion") from conflict
    except InvalidSettings as problem:
        raise _refused("configValidationError", str(problem)) from problem
    overridden = outcome.overridden
    return wire.ConfigWriteResponse(
        status="ok" if overridden is None else "okOverridden",
        version=outcome.version,
        file_path=str(source.path),
        overridden_metadata=None if overridden is None else _metadata(overridden, source),
    )


def _with_files(
    context: ConnectionContext, writes: Sequence[tuple[str, Json, bool]]
) -> Sequence[tuple[str, Json, bool]]:
    """Return the writes; where they agree to hooks, with the files that these name."""
    if not any(key.lstrip().startswith(HOOKS) for key, _, _ in writes):
        return writes
    listed = context.own.get(listed_hooks.ListedHooks, listed_hooks.ListedHooks)
    return listed.completed(writes)


def _metadata(overridden: Overridden, source: UserSettings) -> wire.OverriddenMetadata:
    layer = overridden.layer
    by = f"the profile `{layer.profile}`" if layer.kind is LayerKind.PROFILE else "session flags"
    return wire.OverriddenMetadata(
        message=f"Overridden by {by}",
        overriding_layer=wire.ConfigLayerMetadata(name=layer_name(layer, source), version=layer.version),
        effective_value=overridden.value,
    )


def _refused(code: str, message: str, field: str | None = None) -> RpcError:
    data = {"kind": "config_write", "config_write_error_code": code}
    return RpcError(INVALID_REQUEST, message, data | ({"field": field} if field else {}))


def routes(context: ConnectionContext) -> tuple[Route, ...]:
    return (
        route(wire.CONFIG_READ, config_read, context),
        route(wire.CONFIG_VALUE_WRITE, config_value_write, context),
        route(wire.CONFIG_BATCH_WRITE, config_batch_write, context),
        route(wire.MODEL_PROVIDER_DEFAULT_SET, model_provider_default_set, context),
        constant(wire.CONFIG_REQUIREMENTS_READ, NO_REQUIREMENTS),
        route(choices.PERMISSION_PROFILE_LIST, permission_profile_list, context),
        constant(choices.COLLABORATION_MODE_LIST, MODES),
    )
