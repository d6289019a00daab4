"""The configuration as clients see it, and what can be chosen by name: sandboxes, modes."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path

from pydantic import ValidationError

from app_server.apis.services import ConfigSource
from app_server.apis.v2.permissions import PERMISSION_PROFILES
from app_server.apis.v2.positions import page_by_position
from app_server.core.config.credentials import without_credentials
from app_server.core.config.effective import LayerKind, SettingsLayer, effective_settings
from app_server.core.config.toml_file import CONFIG_FILE, read_config_file
from app_server.core.config.types import RequestOverrides
from app_server.core.errors import ConfigError
from protocol.base import Json
from protocol.table import NoParams
from protocol.v2.config import (
    ConfigLayer,
    ConfigLayerMetadata,
    ConfigLayerSource,
    ConfigReadParams,
    ConfigReadResponse,
    ConfigRequirementsReadResponse,
    SessionFlagsConfigLayerSource,
    ShownConfig,
    UserConfigLayerSource,
)
from protocol.v2.policy import (
    PermissionProfileListParams,
    PermissionProfileListResponse,
    PermissionProfileSummary,
)
from protocol.v2.settings import (
    CollaborationModeListParams,
    CollaborationModeListResponse,
    CollaborationModeMask,
    ModeKind,
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
