"""Writing settings into the user's file. Clients distinguish refusals by a code."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import field
from pathlib import Path
from typing import Final

import anyio

from app_server.apis.services import ConfigSource
from app_server.apis.v2.handlers.configuration import layer_name
from app_server.core.config.credentials import shown_value
from app_server.core.config.edit import SettingEdit, setting_edit
from app_server.core.config.effective import LayerKind
from app_server.core.config.toml_file import CONFIG_FILE
from app_server.core.config.write import Overridden, SettingsPlace, WriteOutcome, write_settings
from app_server.core.errors import InvalidSettings, VersionConflict
from app_server.core.real_path import real_path
from app_server.core.threads import run_in_thread
from app_server.rpc.errors import RpcError
from protocol.jsonrpc import INVALID_REQUEST
from protocol.records import dataclass
from protocol.v2.config import (
    ConfigBatchWriteParams,
    ConfigEdit,
    ConfigLayerMetadata,
    ConfigValueWriteParams,
    ConfigWriteResponse,
    MergeStrategy,
    OverriddenMetadata,
    WriteStatus,
)

MOST_EDITS: Final = 1000
"""Of one request. Each may be a whole table."""


@dataclass(frozen=True, slots=True)
class WriteContext:
    config: ConfigSource
    in_turn: anyio.Lock = field(default_factory=anyio.Lock)
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
