"""Permission profiles as the settings have them, and what is needed to read one when it is chosen. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from app_server_protocol.policy import WorkspaceWrite
from app_server_protocol.structs import Json


class ProfileSettings(Struct, frozen=True, kw_only=True):
    """Profiles by name, each read when it is chosen (`permission_profiles`)."""

    tables: Mapping[str, Json] | None = None
    """None where the settings have no `[permissions]`."""
    user_home: str | None = None
    """$HOME of the user, for paths that begin with `~/`."""
    workspace: WorkspaceWrite = WorkspaceWrite()
    """The built-in `:workspace`, with the settings for it."""
    folders: tuple[str, ...] = ()
    """Workspace roots of the command line."""
