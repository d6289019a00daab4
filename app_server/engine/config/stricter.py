"""Chooses the stricter rights for a client of a shared server, if both its command line and that of the server set
rights. Pure.

A sandbox is stricter if it lets commands do less. An approval policy is stricter if it asks the user more often. If the
values have no order (such as a table of kinds of questions), the server's value counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from app_server_protocol.encoding import Json
from app_server_protocol.policy import AskForApproval, SandboxMode

SANDBOXES: Final[Mapping[str, Sequence[Json]]] = {
    "default_permissions": (":read-only", ":workspace", ":danger-full-access"),
    "sandbox_mode": (
        SandboxMode.READ_ONLY.value,
        SandboxMode.WORKSPACE_WRITE.value,
        SandboxMode.DANGER_FULL_ACCESS.value,
    ),
}
"""Values from the strictest to the widest, by setting. The setting that takes precedence comes first. A permission
profile of the user has no place in the order.
"""
POLICIES: Final[Sequence[Json]] = (
    AskForApproval.UNTRUSTED.value,
    AskForApproval.ON_REQUEST.value,
    AskForApproval.ON_FAILURE.value,
    AskForApproval.NEVER.value,
)
"""Approval policies, from the strictest to the widest."""

WORKSPACE: Final = "sandbox_workspace_write"
LESS: Final = {"network_access": False, "exclude_slash_tmp": True, "exclude_tmpdir_env_var": True}
"""Values that let commands do less, by setting of the writable workspace."""


def stricter_rights(client: Mapping[str, Json], server: Mapping[str, Json]) -> dict[str, Json]:
    """Return the settings for which the client's command line is stricter than the server's."""
    found: dict[str, Json] = {}
    sandbox, (_, most) = _sandbox(client), _sandbox(server)
    if sandbox[1] is not None and most is not None and sandbox[1] < most:
        found[sandbox[0]] = client[sandbox[0]]
    if _is_before(client.get("approval_policy"), server.get("approval_policy"), POLICIES):
        found["approval_policy"] = client["approval_policy"]
    ours, theirs = client.get(WORKSPACE), server.get(WORKSPACE)
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        less: dict[str, Json] = {key: value for key, value in LESS.items() if ours.get(key) is value}
        roots, most = ours.get("writable_roots"), theirs.get("writable_roots")
        if isinstance(roots, list) and isinstance(most, list):
            less["writable_roots"] = [root for root in roots if root in most]
        found[WORKSPACE] = less
    return found


def _sandbox(layer: Mapping[str, Json]) -> tuple[str, int | None]:
    """Return the setting that chooses the sandbox of a layer, and the index of its value in the order; None if it has
    no such index.
    """
    for key, order in SANDBOXES.items():
        if (chosen := layer.get(key)) is not None:
            return key, order.index(chosen) if chosen in order else None
    return "sandbox_mode", None


def _is_before(one: Json, other: Json, order: Sequence[Json]) -> bool:
    return one in order and other in order and order.index(one) < order.index(other)
