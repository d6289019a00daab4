"""The user's settings: the interface of this room for all APIs. Loads one `Config` from the home, the command line and
a request.

Steps: read the user's file, merge the layers, check the result. The file is reread each time, so an edit applies to the
next conversation, and a broken file fails only that conversation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import anyio
import msgspec

from app_server.engine.config import client_limits, settings_file
from app_server.engine.config.config_values import Config, RequestOverrides, SettingsSource, SettingsWarning
from app_server.engine.config.layers import Layered, combine, hook_overrides, key_in_file
from app_server.engine.config.resolve import resolve
from app_server.engine.config.settings_reader import SettingError, derive_error
from app_server.engine.config.tolerance import without_wrong_entries
from app_server.engine.config.toml_file import CONFIG_FILE, parse_toml, places_in_file, read_config_file
from app_server_protocol.engine.thread_settings import UNSET, SettingsPatch, ThreadSettings
from app_server_protocol.values import replace

if TYPE_CHECKING:
    from app_server.engine.config.settings_file import SettingsFile
    from app_server_protocol.encoding import Json

NOTHING_ASKED = RequestOverrides()
RESOLVED: Final = ("cwd", "sandbox_policy", "permission_profile")
"""Fields of a request's patch that `resolve` has applied, because their meaning depends on other settings."""
NO_SWITCHES: Mapping[str, bool] = MappingProxyType({})


def load_config(
    user: SettingsSource,
    request: RequestOverrides = NOTHING_ASKED,
    switches: Mapping[str, bool] = NO_SWITCHES,
    content: bytes | None = None,
) -> Config:
    """Return the configuration of a new conversation. `switches` are features by their current names; every setting
    overrides them. `content` replaces the content of the user's file.

    Raises ConfigError with a complete text: `failed to load configuration: …` for a broken file, and `error deriving
    config: …` for an invalid setting that must not be left out, with its position if it is in the file. Raises
    BeyondClientRights if the request asks for more than the user's own settings grant a client.
    """
    file = read_config_file(user.home) if content is None else parse_toml(content, user.home / CONFIG_FILE)
    owner = user
    folder: Path | None = user.cwd
    if user.cli.above is not None and client_limits.is_fenced(file, user.cli.of_server):
        # The command line that a client brings to a shared server counts as a request, too.
        owner, folder = replace(user, cli=user.cli.of_server), user.own_folder
        client_limits.check_command_line(user.cli)
    elif not client_limits.is_fenced(file, user.cli):
        return _load(user, file, switches, request, content)
    client_limits.check_settings(request.settings)
    config = _load(user, file, switches, request, content)
    in_same_folder = RequestOverrides(patch=SettingsPatch(cwd=request.patch.cwd))
    own = _load(owner, file, switches, in_same_folder, content)
    most = client_limits.client_fence(own, folder)
    client_limits.check_permissions(most, config.thread)
    return replace(
        config,
        fence=most,
        permissions=replace(
            config.permissions, client_rights=False, protected_folders=own.permissions.protected_folders
        ),
        hook_overrides=hook_overrides(owner.cli, NOTHING_ASKED),
    )


def _load(
    user: SettingsSource,
    file: Mapping[str, Json],
    switches: Mapping[str, bool],
    request: RequestOverrides,
    content: bytes | None,
) -> Config:
    given = request.patch
    where, profile = _working_directory(user.cwd, None if given.cwd is UNSET else given.cwd), None

    def combined(left: Mapping[str, Json]) -> Layered:
        nonlocal profile
        layered = combine(left, user.cli, request, switches)
        profile = layered.profile
        return layered

    def key_here(key: tuple[str, ...], layered: Layered) -> tuple[str, ...] | None:
        return key_in_file(key, file, user.cli, request, layered.profile)

    try:
        config, left_out = without_wrong_entries(
            file,
            combined,
            lambda layered: resolve(layered, replace(user, cwd=where), request.base_instructions),
            key_here,
        )
    except SettingError as error:
        key = key_in_file(error.key, file, user.cli, request, profile) if error.key else None
        place = places_in_file(user.home, [key], content).get(key) if key else None
        raise SettingError(error.problem, error.key, place) from error
    except RecursionError as error:
        raise derive_error("the settings are nested too deeply") from error
    warnings = (*left_out, *config.notices.warnings)
    notices = replace(config.notices, warnings=_placed(user, warnings, file, request, profile, content))
    client_limits.require_working_directory(str(where), given)
    return replace(
        config,
        thread=config.thread.patched(given.without(RESOLVED)),
        notices=notices,
        hook_overrides=hook_overrides(user.cli, request),
        request=request,
    )


def _placed(
    user: SettingsSource,
    warnings: Sequence[SettingsWarning],
    file: Mapping[str, Json],
    request: RequestOverrides,
    profile: str | None,
    content: bytes | None,
) -> tuple[SettingsWarning, ...]:
    """Return the warnings, with their positions if the file causes them."""
    keys = {each.key: key_in_file(each.key, file, user.cli, request, profile) for each in warnings}
    wanted = [key for key in keys.values() if key]
    places = places_in_file(user.home, wanted, content) if wanted else {}
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


class UserSettings(SettingsSource, frozen=True, kw_only=True):
    """Loads the settings of one home, and gives access to the user's file."""

    switches: dict[str, bool] = msgspec.field(default_factory=dict)
    """Features that the client has switched, for the lifetime of this server. Settings override them."""
    writes: anyio.Lock = msgspec.field(default_factory=anyio.Lock)
    """Lock for writing the file: clients' writes are made in the order of their requests."""

    @property
    def path(self) -> Path:
        """The path of the user's file."""
        return self.home / CONFIG_FILE

    def load(self, request: RequestOverrides | None = None) -> Config:
        """Return the current configuration. Raises ConfigError."""
        return load_config(self, request or NOTHING_ASKED, self.switches)

    def check(self, config: Config, asked: ThreadSettings) -> None:
        """Raise BeyondClientRights if a client with this configuration asks for more rights than it may have."""
        client_limits.check_permissions(config.fence, asked)

    @property
    def file(self) -> SettingsFile:
        """The user's file, to be shown or written."""
        return settings_file.SettingsFile(self, self.writes)
