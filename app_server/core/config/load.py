"""Loads the configuration: from the home, the command line and a request to one `Config`.

Steps: read the user's file, merge the layers, check the result. The file is reread each time, so an edit applies to the
next conversation, and a broken file fails only that conversation.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from msgspec import Struct

from app_server.core.config.fence import (
    check_permissions,
    check_settings,
    client_fence,
    is_fenced,
    require_working_directory,
)
from app_server.core.config.layers import combine, key_in_file
from app_server.core.config.resolve import ResolveInputs, resolve
from app_server.core.config.settings_reader import SettingError, derive_error
from app_server.core.config.toml_file import place_in_file, places_in_file, read_config_file
from app_server.core.config.types import CliOverrides, Config, RequestOverrides, SettingsWarning
from protocol.policy import roots_beside, with_roots
from protocol.structs import replace

if TYPE_CHECKING:
    from protocol.structs import Json

NO_SWITCHES: Mapping[str, bool] = MappingProxyType({})


def load_config(
    home: Path,
    *,
    cwd: Path,
    cli: CliOverrides,
    request: RequestOverrides,
    env: Mapping[str, str],
    switches: Mapping[str, bool] = NO_SWITCHES,
) -> Config:
    """Return the configuration of a new conversation. `cwd` is the server's; the request may name another.

    `switches` are features by their current names, and count less than every setting.

    Raises ConfigError with a complete text: `failed to load configuration: …` for a broken file and
    `error deriving config: …` for an invalid setting, with its position if it is in the file; BeyondClientRights where
    the user's own settings leave a client less than the request asks for.
    """
    file = read_config_file(home)

    def load(given: RequestOverrides) -> Config:
        return _load(
            _UsersSettings(home, file, cli, env, switches), _working_directory(cwd, given.cwd), given
        )

    if not is_fenced(file, cli):
        return load(request)
    check_settings(request.settings)
    config, own = load(request), load(RequestOverrides(cwd=request.cwd))
    fence = client_fence(own, cwd)
    check_permissions(fence, config.permissions, str(config.cwd))
    return replace(config, fence=fence)


class _UsersSettings(Struct, frozen=True):
    """What the user has set."""

    home: Path
    file: Mapping[str, Json]
    cli: CliOverrides
    env: Mapping[str, str]
    switches: Mapping[str, bool]


def _load(source: _UsersSettings, where: Path, request: RequestOverrides) -> Config:
    home, file, cli, profile = source.home, source.file, source.cli, None
    try:
        layered = combine(file, cli, request, source.switches)
        profile = layered.profile
        config = resolve(layered, ResolveInputs(home, where, source.env, request.base_instructions))
    except SettingError as error:
        key = key_in_file(error.key, file, cli, request, profile) if error.key else None
        place = place_in_file(home, key) if key else None
        raise SettingError(error.problem, error.key, place) from error
    except RecursionError as error:
        raise derive_error("the settings are nested too deeply") from error
    notices = replace(config.notices, warnings=_placed(home, config, file, cli, request))
    granular = config.permissions.granular if request.approval_policy is None else request.granular
    require_working_directory(str(where), request.workspace_roots)
    roots = roots_beside(str(where), request.workspace_roots or ())
    chosen = replace(
        config.permissions,
        granular=granular,
        profile=request.permission_profile,
        sandbox_policy=with_roots(config.permissions.sandbox_policy, roots),
        workspace_roots=roots,
    )
    instructions = replace(config.instructions, mode=request.mode, of_mode=request.mode_instructions)
    return replace(config, permissions=chosen, instructions=instructions, notices=notices, request=request)


def _placed(
    home: Path, config: Config, file: Mapping[str, Json], cli: CliOverrides, request: RequestOverrides
) -> tuple[SettingsWarning, ...]:
    """Return the warnings with their places, where the file is the reason."""
    warnings = config.notices.warnings
    keys = {each.key: key_in_file(each.key, file, cli, request, config.profile) for each in warnings}
    places = places_in_file(home, [key for key in keys.values() if key]) if any(keys.values()) else {}
    return tuple(replace(each, place=places.get(keys[each.key] or ())) for each in warnings)


def _working_directory(server: Path, requested: str | None) -> Path:
    if not requested:
        return server
    try:
        requested.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise derive_error("the working directory is not a path") from error
    if "\0" in requested:
        raise derive_error("the working directory is not a path")
    return server / requested
