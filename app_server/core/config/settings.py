"""The user's settings: the face of this room for all APIs. The file is read again for each call."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import msgspec

from app_server.core.config.load import load_config
from app_server.core.config.toml_file import CONFIG_FILE
from app_server.core.config.types import Config, RequestOverrides, SettingsPlace
from app_server.core.lazy import Lazy

if TYPE_CHECKING:
    from app_server.core.config.settings_file import SettingsFile


# Most servers neither show nor write the file.
_FILE: Lazy[type[SettingsFile]] = Lazy(
    lambda: import_module("app_server.core.config.settings_file").SettingsFile
)


class UserSettings(SettingsPlace, frozen=True, kw_only=True):
    """Loads the settings of one home, and gives access to the file that holds them."""

    switches: dict[str, bool] = msgspec.field(default_factory=dict)
    """Features that the client has switched for as long as this server runs; the settings count more."""
    writes: anyio.Lock = msgspec.field(default_factory=anyio.Lock)
    """Held by who writes the file: clients' writes are made in the order in which they came."""

    @property
    def path(self) -> Path:
        """Return the path of the user's file."""
        return self.home / CONFIG_FILE

    def load(self, request: RequestOverrides | None = None) -> Config:
        """Return the current configuration. Raises ConfigError."""
        return load_config(
            self.home,
            cwd=self.cwd,
            cli=self.cli,
            request=request or RequestOverrides(),
            env=self.environment,
            switches=self.switches,
        )

    @property
    def file(self) -> SettingsFile:
        """Return the user's file, to be shown or written."""
        return _FILE.get()(self, self.writes)
