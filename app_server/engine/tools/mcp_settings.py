"""Persistent approvals of MCP tools: the setting `approval_mode` of the tool in config.toml.

An approval can be stored only for a server that config.toml defines as it runs here. Under the name of a server that a
request or the command line defines, another program could run in the next conversation.
"""

from __future__ import annotations

from collections.abc import Mapping

from app_server.engine.config.config_values import Config
from app_server.engine.config.effective import SettingEdit, edited
from app_server.engine.config.mcp_server_settings import McpApproval, McpServerConfig
from app_server.engine.config.resolve import read_mcp_servers
from app_server.engine.config.settings_file import rewrite_config
from app_server.engine.config.settings_reader import SettingsTable
from app_server.engine.config.toml_file import read_config_file
from app_server.engine.support.engine_errors import ConfigError
from app_server_protocol.encoding import Json


def can_keep_approval(config: Config, server: McpServerConfig) -> bool:
    """Return whether the settings can approve tools of this server. Reads the disk."""
    if config.fence is not None:
        return False
    try:
        return _is_defined(read_config_file(config.home), server)
    except ConfigError:
        return False


def keep_approval(config: Config, server: McpServerConfig, tool: str) -> None:
    """Store that calls of the tool need no approval. Raises ConfigError if the file cannot be changed."""
    key = ("mcp_servers", server.name, "tools", tool, "approval_mode")

    def change(settings: Mapping[str, Json]) -> Mapping[str, Json]:
        if not _is_defined(settings, server):
            raise ConfigError(f"config.toml defines another MCP server `{server.name}` now")
        return edited(settings, [SettingEdit(key, McpApproval.APPROVE.value)])

    rewrite_config(config.home, change)


def _is_defined(settings: Mapping[str, Json], server: McpServerConfig) -> bool:
    found = read_mcp_servers(SettingsTable(settings)).get(server.name)
    return found is not None and found.transport == server.transport
