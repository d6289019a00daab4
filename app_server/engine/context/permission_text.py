"""Writes a permission profile in the forms of codex: as text for the model, and as JSON for stored conversations. Pure.

The forms are those of codex 0.171.
"""

from __future__ import annotations

from collections.abc import Iterator
from posixpath import join

from app_server_protocol.encoding import Json
from app_server_protocol.engine.thread_settings import ThreadSettings
from app_server_protocol.policy import (
    WORKSPACE_ROOTS,
    Access,
    DangerFullAccess,
    PermissionProfile,
    SandboxPolicy,
    as_profile,
)
from app_server_protocol.rollout import StoredProfile


def filesystem_lines(profile: PermissionProfile) -> Iterator[str]:
    """Yield the lines that describe a profile's files to the model."""
    yield "  <filesystem>"
    yield "    <workspace_roots>"
    yield "      <root>the working directory</root>"
    yield from (f"      <root>{_escaped(root)}</root>" for root in profile.roots)
    yield "    </workspace_roots>"
    yield '    <permission_profile type="managed">'
    for rule in profile.rules:
        place = join(rule.place, rule.below) if rule.below else rule.place
        element = "glob" if rule.is_pattern else "special" if place.startswith(":") else "path"
        fixed = ' escalatable="false"' if rule.access is Access.DENY else ""
        yield f'      <entry access="{rule.access}"{fixed}><{element}>{_escaped(place)}</{element}></entry>'
    yield "    </permission_profile>"
    yield "  </filesystem>"


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def stored_profile(settings: ThreadSettings) -> StoredProfile | None:
    """Return the name of the profile in force; None if the sandbox was chosen in another way."""
    if settings.permission_profile is None:
        return None
    policy = settings.sandbox_policy
    extends = policy.extends if isinstance(policy, PermissionProfile) else None
    return StoredProfile(id=settings.permission_profile, extends=extends)


def stored_entries(policy: SandboxPolicy, cwd: str) -> Json:
    """Return the rights of a policy, as a profile of codex."""
    if isinstance(policy, DangerFullAccess):
        return {"type": "disabled"}
    profile = as_profile(policy)
    return {
        "type": "managed",
        "file_system": {"type": "restricted", "entries": list(_entries(profile, cwd))},
        "network": "enabled" if profile.network else "restricted",
    }


def _entries(profile: PermissionProfile, cwd: str) -> Iterator[Json]:
    for rule in profile.rules:
        places = [rule.place]
        if rule.place == WORKSPACE_ROOTS:
            places = [join(root, rule.below) if rule.below else root for root in (cwd, *profile.roots)]
        for place in places:
            if rule.is_pattern:
                path: Json = {"type": "glob_pattern", "pattern": place}
            elif place.startswith(":"):
                path = {"type": "special", "value": {"kind": place[1:]}}
            else:
                path = {"type": "path", "path": place}
            yield {"path": path, "access": str(rule.access)}
