"""The settings of a stored thread that is opened again, from a request and from the thread's last turn.

The permission profile of the last turn is stored by its name: the meaning of the name is read from the settings, never
from the stored conversation.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from app_server.engine.config.config_values import Config, RequestOverrides, SettingsWarning
from app_server.engine.config.permission_profiles import ProfileError
from app_server.engine.config.settings_reader import plain_name
from app_server.engine.config.settings_service import UserSettings
from app_server.engine.support.engine_errors import BeyondClientRights
from app_server.server.apis.v2.thread_settings import with_last_settings
from app_server_protocol.engine.thread_settings import UNSET, SettingsPatch
from app_server_protocol.rollout import TurnContextItem
from app_server_protocol.values import replace

if TYPE_CHECKING:
    from app_server.engine.storage.stored_conversations import StoredConversations


async def reopened(
    source: UserSettings, stored: StoredConversations, path: Path, given: RequestOverrides
) -> Config:
    """Load the settings of a stored thread. Settings that the request does not name are those of its last turn, with
    three exceptions. Its rights are not restored if they exceed those that the user lets clients have. Neither they nor
    the folder are restored if the file is none of the server's own. The model is not restored if the provider is
    another one. Raises ConfigError.
    """
    last = await stored.last_settings(path)
    config = await _as_before(source, stored, path, given, last)
    if last is None or not last.model or given.patch.model is not UNSET:
        return config
    provider = await stored.provider(path)
    if provider in (None, config.provider.id):
        return config
    # A model's name means nothing to another provider, so the configured model is used.
    return await _as_before(
        source, stored, path, given, replace(last, model="", effort=None, further_effort=None)
    )


async def _as_before(
    source: UserSettings,
    stored: StoredConversations,
    path: Path,
    given: RequestOverrides,
    last: TurnContextItem | None,
) -> Config:
    if not await stored.has(path):
        here = replace(given, patch=given.patch.over(SettingsPatch(cwd=str(source.cwd))))
        return source.load(with_last_settings(here, last, rights=False))
    asked = with_last_settings(given, last)
    try:
        return source.load(asked)
    except BeyondClientRights:
        return source.load(with_last_settings(given, last, rights=False))
    except ProfileError as error:
        if asked.patch.permission_profile == given.patch.permission_profile:
            raise
        return _without_profile(source.load(with_last_settings(given, last, sandbox=False)), asked, error)


def _without_profile(config: Config, asked: RequestOverrides, error: ProfileError) -> Config:
    """Return the settings with a warning that the profile of a thread's last turn cannot be chosen any more."""
    last, now = (
        plain_name(str(name or ""))
        for name in (asked.patch.permission_profile, config.thread.permission_profile)
    )
    instead = f"the configured one, `{now}`, holds" if now else "the configured sandbox holds"
    warning = SettingsWarning(
        f"The last turn's permission profile `{last}` cannot be chosen ({error}); {instead}."
    )
    notices = replace(config.notices, warnings=(*config.notices.warnings, warning))
    return replace(config, notices=notices)
