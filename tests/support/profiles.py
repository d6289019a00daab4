"""Permission profiles for tests, read from the form that the settings have."""

from __future__ import annotations

from collections.abc import Mapping

from app_server.engine.config.permission_profiles import policy_named
from app_server.engine.config.profile_settings import ProfileSettings
from app_server_protocol.encoding import Json
from app_server_protocol.policy import PermissionProfile

VS_CODE: Mapping[str, Json] = {
    "vscode-workspace": {
        "extends": ":workspace",
        "filesystem": {":root": "deny", ":minimal": "read", ":tmpdir": "write", ":slash_tmp": "read"},
        "network": {"enabled": False},
    },
    "vscode-workspace-network": {"extends": "vscode-workspace", "network": {"enabled": True}},
    "vscode-workspace-read-only": {
        "extends": "vscode-workspace",
        "filesystem": {":workspace_roots": {".": "read"}},
    },
}
"""Permission profiles that VS Code 1.139 passes on the command line."""


def profile(
    filesystem: Mapping[str, Json] | None = None,
    *,
    extends: str | None = ":workspace",
    network: Mapping[str, Json] | None = None,
    roots: Mapping[str, bool] | None = None,
    home: str | None = None,
) -> PermissionProfile:
    """Return a profile called `p`."""
    table: dict[str, Json] = {
        "extends": extends,
        "filesystem": filesystem,
        "network": network,
        "workspace_roots": roots,
    }
    return named({"p": {key: value for key, value in table.items() if value is not None}}, "p", home)


def named(tables: Mapping[str, Json], name: str, home: str | None = None) -> PermissionProfile:
    """Return the profile of that name from these tables."""
    policy = policy_named(ProfileSettings(tables=tables, user_home=home), name)
    assert isinstance(policy, PermissionProfile)
    return policy
