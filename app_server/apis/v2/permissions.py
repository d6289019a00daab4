"""Permission profiles: names for the three kinds of sandboxes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, assert_never

from app_server.rpc.errors import invalid_request
from protocol.policy import DangerFullAccess, ReadOnly, SandboxMode, SandboxPolicy, WorkspaceWrite
from protocol.v2.policy import ActivePermissionProfile

PERMISSION_PROFILES: Final[Mapping[str, SandboxMode]] = {
    ":read-only": SandboxMode.READ_ONLY,
    ":workspace": SandboxMode.WORKSPACE_WRITE,
    ":danger-full-access": SandboxMode.DANGER_FULL_ACCESS,
}


def profile_mode(name: str, *, beside: str, given: object) -> SandboxMode:
    """The sandbox of a profile. `beside` is the parameter that says the same in other words, `given` its value.
    Raises RpcError where both are given, or the name is unknown.
    """
    if given is not None:
        raise invalid_request(
            f"`permissions` cannot be combined with `{beside}`", "invalid_params", "permissions"
        )
    mode = PERMISSION_PROFILES.get(name)
    if mode is None:
        names = ", ".join(PERMISSION_PROFILES)
        raise invalid_request(
            f"unknown permission profile `{name[:100]}`, expected one of {names}",
            "invalid_params",
            "permissions",
        )
    return mode


def profile_policy(mode: SandboxMode, configured: SandboxPolicy) -> SandboxPolicy:
    """The policy of that kind; a writable workspace has the settings that the thread was opened with."""
    match mode:
        case SandboxMode.READ_ONLY:
            return ReadOnly()
        case SandboxMode.WORKSPACE_WRITE:
            return configured if isinstance(configured, WorkspaceWrite) else WorkspaceWrite()
        case SandboxMode.DANGER_FULL_ACCESS:
            return DangerFullAccess()
        case _:
            assert_never(mode)


def active_profile(name: str | None) -> ActivePermissionProfile | None:
    return None if name is None else ActivePermissionProfile(id=name)
