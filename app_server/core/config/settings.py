"""The user's settings: the face of this room for all APIs. The file is read again for each call."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import msgspec

from app_server.core.config.load import load_config
from app_server.core.config.toml_file import CONFIG_FILE
from app_server.core.config.types import CliOverrides, Config, RequestOverrides, SettingsPlace
from app_server.core.lazy import Lazy
from protocol.structs import Discreet

if TYPE_CHECKING:
    from app_server.core.config.settings_file import SettingsFile


class UserSettings(Discreet, frozen=True, kw_only=True):
    """Loads the settings of one home, and gives access to the file that holds them."""

    HIDDEN = ("environment", "writes")
    home: Path
    cwd: Path
    """The server's own working directory, for conversations that name none."""
    cli: CliOverrides
    environment: Mapping[str, str]
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
        place = SettingsPlace(self.home, self.cwd, self.cli, self.environment)
        return _FILE.get()(place, self.writes)


def _load_file() -> type[SettingsFile]:
    """Load what shows and writes the file; most servers do neither."""
    from app_server.core.config.settings_file import SettingsFile  # noqa: PLC0415

    return SettingsFile


_FILE = Lazy(_load_file)
