"""From a policy and the facts of the disk to a plan: what a command may write, reach and read. Pure.

The facts come from `inspect`, the plan is carried out by `confine` (Linux) or `macos`. Every path in a
plan is absolute and canonical. A root that cannot be resolved is left out: an unresolved path is never
granted.
"""

from __future__ import annotations

import os.path

from protocol.policy import DangerFullAccess, ReadOnly, SandboxPolicy, WorkspaceWrite
from protocol.records import dataclass

FENCED_NAMES = (".git", ".codex", ".agents")
"""What in a writable root decides what the user's tools will execute later: never writable, there or not."""

SECRET_FILES = ("auth.json", ".credentials.json", ".locks")
"""Files of the server's home that no command opens: credentials, and what its servers lock."""


@dataclass(frozen=True, slots=True)
class RootFacts:
    """One directory that a policy names, as the disk has it."""

    path: str
    """As the policy gives it, absolute, not resolved."""
    real: str | None
    """Resolved; None where it is missing or no directory."""
    fences: tuple[str, ...] = ()
    """Existing paths that must stay as they are: protected names, where links among them lead, git's real
    directories.
    """
    foreign: bool = False
    """Owned by another user than the server's."""


@dataclass(frozen=True, slots=True)
class SandboxFacts:
    """What `inspect` found for one policy."""

    home: str
    """The server's home, resolved."""
    roots: tuple[RootFacts, ...] = ()
    temporary: tuple[RootFacts, ...] = ()
    """/tmp and $TMPDIR, as far as the policy grants them."""
    superuser: bool = False


@dataclass(frozen=True, slots=True)
class SandboxPlan:
    """What one command may do. `None` in place of a plan means: everything."""

    writable_roots: tuple[str, ...] = ()
    fences: tuple[str, ...] = ()
    """Read-only inside the roots, existing paths."""
    reserved: tuple[str, ...] = ()
    """Names directly below a root that must not come into being, or are read-only where they exist."""
    home: str = ""
    secrets: tuple[str, ...] = SECRET_FILES
    """Names in `home` that cannot be read."""
    network: bool = False
    private_temp: bool = True
    """No temporary directory of the host is writable: the command gets one of its own."""
    foreign_files: bool = False
    """The server is root and a root belongs to somebody else: the file capabilities stay, inside the
    roots.
    """


def make_plan(policy: SandboxPolicy, facts: SandboxFacts) -> SandboxPlan | None:
    """The plan for `policy`; None for full access."""
    match policy:
        case DangerFullAccess():
            return None
        case ReadOnly():
            return SandboxPlan(home=facts.home)
        case WorkspaceWrite():
            return _workspace_plan(policy, facts)


def _workspace_plan(policy: WorkspaceWrite, facts: SandboxFacts) -> SandboxPlan:
    named = (*facts.roots, *facts.temporary)
    granted = _granted(named, facts.home)
    writable = tuple(dict.fromkeys(root.real for root in granted if root.real))
    fences = {fence for root in named for fence in root.fences}
    fences.update(root.real for root in named if root.real and within(root.real, facts.home))
    fences.add(facts.home)
    fences = {fence for fence in fences if any(within(fence, root) for root in writable)}
    names = {os.path.join(root.real, name) for root in facts.roots for name in FENCED_NAMES if root.real}
    # Also those that exist: what was seen may be another command's empty directory, which is about to go.
    reserved = {name for name in names if any(within(name, root) for root in writable)}
    return SandboxPlan(
        writable_roots=writable,
        fences=tuple(sorted(fences)),
        reserved=tuple(sorted(reserved)),
        home=facts.home,
        network=policy.network_access,
        private_temp=not any(root.real for root in facts.temporary),
        foreign_files=facts.superuser and any(root.foreign for root in granted),
    )


def _granted(named: tuple[RootFacts, ...], home: str) -> list[RootFacts]:
    """The roots that are opened for writing; the others are covered by these, or refused.

    One that lies below another by name is covered by that one; resolving it as well would let a command
    that replaces it by a link choose a root of its own. The whole disk is no root, nor is anything in the
    server's home.
    """
    granted = []
    for root in named:
        covered = any(
            other.real and other.path != root.path and within(root.path, other.path) for other in named
        )
        if root.real not in (None, "/") and not covered and not within(root.real or "/", home):
            granted.append(root)
    return granted


def within(path: str, root: str) -> bool:
    """`path` is `root` or lies below it, by whole components."""
    return path == root or path.startswith(root.rstrip("/") + "/")
