"""The plan of any kind of policy. Pure."""

from __future__ import annotations

from app_server.engine.sandbox.plan import SandboxFacts, SandboxPlan, workspace_plan
from app_server.engine.sandbox.profile_plan import profile_plan
from app_server_protocol.policy import (
    DangerFullAccess,
    PermissionProfile,
    ReadOnly,
    SandboxPolicy,
    WorkspaceWrite,
)


def make_plan(policy: SandboxPolicy, facts: SandboxFacts) -> SandboxPlan | None:
    """Return the plan for `policy`; None for full access."""
    match policy:
        case DangerFullAccess():
            return None
        case ReadOnly():
            return SandboxPlan(home=facts.home)
        case WorkspaceWrite():
            return workspace_plan(policy, facts)
        case PermissionProfile():
            return profile_plan(policy, facts)


def make_approved_plan(policy: SandboxPolicy, facts: SandboxFacts) -> SandboxPlan | None:
    """Return the plan for a command that the user allowed to run without the sandbox. It is None unless the policy
    hides files.
    """
    if not isinstance(policy, PermissionProfile):
        return None
    plan = profile_plan(policy, facts, approved=True)
    return plan if plan.view.hides else None
