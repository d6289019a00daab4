"""Permission profiles in the settings, with the data that is needed to parse one when it is chosen. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from app_server_protocol.encoding import Json
from app_server_protocol.policy import WorkspaceWrite


class ProfileSettings(Struct, frozen=True, kw_only=True):
    """Permission profiles by name. Each is parsed when it is chosen (`permission_profiles`)."""

    tables: Mapping[str, Json] | None = None
    """Tables of `[permissions]` by name; None if the settings have no `[permissions]`."""
    user_home: str | None = None
    """$HOME of the user, for paths that begin with `~/`; None if it is not set."""
    workspace: WorkspaceWrite = WorkspaceWrite()
    """Policy of the built-in profile `:workspace`, with the user's settings for it."""
    folders: tuple[str, ...] = ()
    """Workspace roots from the command line."""
