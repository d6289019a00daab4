"""The configuration as clients see it, what can be chosen by name, and writing settings into the user's file,
whose refusals clients distinguish by a code.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Final

import anyio
import msgspec
from msgspec import Struct
from pydantic import ValidationError

from app_server.apis.route import Route, route
from app_server.apis.services import ConfigSource
from app_server.apis.v2.errors import page_by_position
from app_server.apis.v2.services import ThreadServices
from app_server.apis.v2.settings import PERMISSION_PROFILES
from app_server.core.config.edit import SettingEdit, setting_edit
from app_server.core.config.effective import (
    LayerKind,
    SettingsLayer,
    effective_settings,
    shown_value,
    without_credentials,
)
from app_server.core.config.toml_file import CONFIG_FILE, read_config_file
from app_server.core.config.types import RequestOverrides
from app_server.core.config.write import Overridden, SettingsPlace, WriteOutcome, write_settings
from app_server.core.errors import ConfigError, InvalidSettings, VersionConflict
from app_server.core.real_path import real_path
from app_server.core.threads import run_in_thread
from app_server.rpc.errors import RpcError
from protocol.base import Json
from protocol.jsonrpc import INVALID_REQUEST
from protocol.table import NoParams
from protocol.v2.config import (
    CONFIG_BATCH_WRITE,
    CONFIG_READ,
    CONFIG_REQUIREMENTS_READ,
    CONFIG_VALUE_WRITE,
    ConfigBatchWriteParams,
    ConfigEdit,
    ConfigLayer,
    ConfigLayerMetadata,
    ConfigLayerSource,
    ConfigReadParams,
    ConfigReadResponse,
    ConfigRequirementsReadResponse,
    ConfigValueWriteParams,
    ConfigWriteResponse,
    MergeStrategy,
    OverriddenMetadata,
    SessionFlagsConfigLayerSource,
    ShownConfig,
    UserConfigLayerSource,
    WriteStatus,
)
from protocol.v2.settings import (
    COLLABORATION_MODE_LIST,
    PERMISSION_PROFILE_LIST,
    CollaborationModeListParams,
    CollaborationModeListResponse,
    CollaborationModeMask,
    ModeKind,
    PermissionProfileListParams,
    PermissionProfileListResponse,
    PermissionProfileSummary,
)

MODES = (
    CollaborationModeMask(name="Plan", mode=ModeKind.PLAN, reasoning_effort="medium"),
    CollaborationModeMask(name="Default", mode=ModeKind.DEFAULT),
)


async def config_read(source: ConfigSource, params: ConfigReadParams) -> ConfigReadResponse:
    """Settings that no thread could begin with are an error here, too. Raises ConfigError."""
    source.load(RequestOverrides(cwd=params.cwd))
    try:
        return _read(source, include_layers=params.include_layers)
    except RecursionError as error:
        raise ConfigError("failed to load configuration: it is nested too deeply") from error


def _read(source: ConfigSource, *, include_layers: bool) -> ConfigReadResponse:
    found = effective_settings(read_config_file(source.home), source.cli)
    layers = [_layer(layer, source.home) for layer in found.layers] if include_layers else None
    return ConfigReadResponse(
        config=shown_config(without_credentials(found.settings)),
        origins={
            key: ConfigLayerMetadata(name=layer_name(layer, source.home), version=layer.version)
            for key, layer in found.origins.items()
        },
        layers=None if layers is None else tuple(layers),
    )


async def config_requirements_read(source: ConfigSource, params: NoParams) -> ConfigRequirementsReadResponse:
    """There is no administrator's file that this server reads, so nothing is required."""
    return ConfigRequirementsReadResponse(requirements=None)


async def permission_profile_list(
    source: ConfigSource, params: PermissionProfileListParams
) -> PermissionProfileListResponse:
    """The three kinds of sandboxes; all can be chosen."""
    profiles = [PermissionProfileSummary(id=id, allowed=True) for id in PERMISSION_PROFILES]
    page, next_cursor = page_by_position(profiles, params.cursor, params.limit)
    return PermissionProfileListResponse(data=page, next_cursor=next_cursor)


async def collaboration_mode_list(
    source: ConfigSource, params: CollaborationModeListParams
) -> CollaborationModeListResponse:
    return CollaborationModeListResponse(data=MODES)


def shown_config(settings: Mapping[str, Json]) -> ShownConfig:
    """The settings in the shape that clients know. What has another shape there, as `tools.web_search` which is a
    switch here, is left out.
    """
    fitting: dict[str, Json] = deepcopy({**settings})
    while True:
        try:
            return ShownConfig.model_validate(fitting)
        except ValidationError as error:
            for problem in error.errors(include_url=False, include_input=False):
                _leave_out(fitting, [str(part) for part in problem["loc"]])


def _leave_out(table: dict[str, Json], path: list[str]) -> None:
    """The innermost setting that this path leads to."""
    parent, key = table, path[0]
    for part in path[1:]:
        inner = parent.get(key)
        if not isinstance(inner, dict) or part not in inner:
            break
        parent, key = inner, part
    parent.pop(key, None)


def _layer(layer: SettingsLayer, home: Path) -> ConfigLayer:
    return ConfigLayer(
        name=layer_name(layer, home), version=layer.version, config=without_credentials(layer.settings)
    )


def layer_name(layer: SettingsLayer, home: Path) -> ConfigLayerSource:
    match layer.kind:
        case LayerKind.USER | LayerKind.PROFILE:
            return UserConfigLayerSource(file=str(home / CONFIG_FILE), profile=layer.profile)
        case LayerKind.COMMAND_LINE:
            return SessionFlagsConfigLayerSource()


MOST_EDITS: Final = 1000
"""Of one request. Each may be a whole table."""


class WriteContext(Struct, frozen=True):
    config: ConfigSource
    in_turn: anyio.Lock = msgspec.field(default_factory=anyio.Lock)
    """Requests are served in the order in which they came; other servers are kept out by a lock on the home."""


async def config_value_write(context: WriteContext, params: ConfigValueWriteParams) -> ConfigWriteResponse:
    edit = ConfigEdit(key_path=params.key_path, value=params.value, merge_strategy=params.merge_strategy)
    return await _write(context, (edit,), params.file_path, params.expected_version)


async def config_batch_write(context: WriteContext, params: ConfigBatchWriteParams) -> ConfigWriteResponse:
    """`reloadUserConfig` changes nothing: threads keep the settings with which they began."""
    return await _write(context, params.edits, params.file_path, params.expected_version)


async def _write(
    context: WriteContext, edits: Sequence[ConfigEdit], file_path: str | None, expected_version: str | None
) -> ConfigWriteResponse:
    source = context.config
    if file_path is not None and not _is_users_file(file_path, source.home):
        raise _refused("configLayerReadonly", "Only writes to the user config are allowed", "filePath")
    place = SettingsPlace(source.home, source.cwd, source.cli, source.environment)
    try:
        if len(edits) > MOST_EDITS:
            raise InvalidSettings(f"at most {MOST_EDITS} edits are made at once")
        changes = [_edit(edit) for edit in edits]
        async with context.in_turn:
            outcome = await run_in_thread(write_settings, place, changes, expected_version)
    except VersionConflict as conflict:
        raise _refused("configVersionConflict", str(conflict), "expectedVersion") from conflict
    except InvalidSettings as problem:
        raise _refused("configValidationError", str(problem)) from problem
    return _response(outcome, source.home)


def _edit(edit: ConfigEdit) -> SettingEdit:
    return setting_edit(edit.key_path, edit.value, merge=edit.merge_strategy is MergeStrategy.UPSERT)


def _is_users_file(path: str, home: Path) -> bool:
    """By its name, not by where a link may lead."""
    folder, name = os.path.split(os.path.normpath(path))
    if not os.path.isabs(path) or name != CONFIG_FILE:
        return False
    return folder == os.path.normpath(home) or real_path(folder) == real_path(home)


def _response(outcome: WriteOutcome, home: Path) -> ConfigWriteResponse:
    overridden = outcome.overridden
    return ConfigWriteResponse(
        status=WriteStatus.OK if overridden is None else WriteStatus.OK_OVERRIDDEN,
        version=outcome.version,
        file_path=str(home / CONFIG_FILE),
        overridden_metadata=None if overridden is None else _metadata(overridden, home),
    )


def _metadata(overridden: Overridden, home: Path) -> OverriddenMetadata:
    layer = overridden.layer
    by = f"the profile `{layer.profile}`" if layer.kind is LayerKind.PROFILE else "session flags"
    return OverriddenMetadata(
        message=f"Overridden by {by}",
        overriding_layer=ConfigLayerMetadata(name=layer_name(layer, home), version=layer.version),
        effective_value=shown_value(overridden.key, overridden.value),
    )


def _refused(code: str, message: str, field: str | None = None) -> RpcError:
    data = {"kind": "config_write", "config_write_error_code": code}
    return RpcError(INVALID_REQUEST, message, data | ({"field": field} if field else {}))


def routes(services: ThreadServices) -> tuple[Route, ...]:
    config = services.server.config
    writing = WriteContext(config)
    return (
        route(CONFIG_READ, config_read, config),
        route(CONFIG_VALUE_WRITE, config_value_write, writing),
        route(CONFIG_BATCH_WRITE, config_batch_write, writing),
        route(CONFIG_REQUIREMENTS_READ, config_requirements_read, config),
        route(PERMISSION_PROFILE_LIST, permission_profile_list, config),
        route(COLLABORATION_MODE_LIST, collaboration_mode_list, config),
    )
