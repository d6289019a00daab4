"""The settings of a server and of each of its clients, from command lines, environments and what clients send."""

from __future__ import annotations

from pathlib import Path

from app_server.engine.config.config_values import SettingsSource, SharingSettings
from app_server.engine.sandbox.plan import KeptFolders
from app_server.engine.support.limits import Limits
from app_server.engine.system_ports import SystemPorts


class ClientSettings(SettingsSource, frozen=True, kw_only=True):
    """Surroundings of one client: its directory, environment and overrides, and the API that it uses."""

    acp: bool = False
    """Whether the client speaks the Agent Client Protocol, and no other."""
    brings_environment: bool = True
    """Whether the environment is the client's own; if not, it is the server's."""
    takes_codex_key: bool = False
    """Whether `CODEX_API_KEY` of the client's environment takes precedence over every login."""
    has_cwd: bool = True
    """Whether a person chose the directory; if not, the client's requests name one."""
    receives_all_threads: bool = True
    """Whether the client is notified of conversations that others opened."""
    shared: bool = False
    """Whether the client is connected to a server that others use, too; if not, the server is its own."""


class ServerSettings(ClientSettings, frozen=True, kw_only=True):
    """The settings from the command line and the environment."""

    limits: Limits = Limits()
    sharing: SharingSettings | None = None
    """Times for which work goes on without clients, in a server that outlives its clients; None if the server belongs
    to one client.
    """
    threads: Path | None = None
    """Home in which new conversations are stored; that of the settings if it is None."""
    kept: KeptFolders = KeptFolders()
    machine: SystemPorts = SystemPorts()
