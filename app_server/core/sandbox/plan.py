"""Makes a sandbox plan from a policy and the facts of the disk: what a command may write, reach and read. Pure.

`inspect` finds the facts; the launcher enforces the plan on Linux, sandbox-exec on macOS. Every path in a plan is
absolute and canonical. A root that cannot be resolved is left out: an unresolved path is never granted. No root of a
plan lies inside another one.
"""

from __future__ import annotations

import os.path
from collections.abc import Iterable, Mapping, Set
from typing import Literal

import msgspec
from msgspec import Struct

from app_server.beneath import SECRET_FILES
from app_server.core import remedies
from app_server.core.file_rules import FileRules
from app_server.core.real_path import within
from app_server_protocol.policy import WorkspaceWrite
from app_server_protocol.structs import replace

PROTECTED_NAMES = (".git", ".codex", ".agents", ".aws")
"""Names in a writable root that control what the user's tools execute later: never writable, even if missing."""

WHOLE_DISK = "the whole disk can be no root"
IN_HOME = "it lies in the server's home"
KEPT = "it lies in a folder that the server keeps its own files in"
HAS_SOCKET = "the socket of a shared server is in it"
REPLACED = "a part of its path has become a link since the conversation was given it"
BY_LINK = "it is reached by a link that commands may change"
INCOMPLETE = "there are more folders in it than are looked at: .git is not protected in all of them"


class RootFacts(Struct, frozen=True):
    """The facts about one directory that a policy names."""

    path: str
    """As in the policy: absolute, not resolved."""
    real: str | None
    """Its real path when the conversation got it; None if that is no directory now."""
    protected: tuple[str, ...] = ()
    """Existing paths that must stay unchanged: protected names, the targets of links among them, git's real
    directories.
    """
    foreign: bool = False
    """Owned by another user than the server's."""
    links: tuple[str, ...] = ()
    """The links by which the path was reached, by their real paths."""
    by_changeable_link: bool = False
    """One of the links lay where commands of this server could write."""
    replaced: str | None = None
    """The real path, if a part of it is a link now."""
    incomplete: bool = False
    """There may be repositories inside that are not protected."""
    is_file: bool = False
    """A single file, which a permission profile lets commands write."""


class KeptFolders(Struct, frozen=True):
    """Folders outside of the home whose files the server believes as it believes those of the home."""

    folders: tuple[str, ...] = ()
    """Real paths. No command changes anything in them, in whatever root they lie."""
    workplace: str | None = None
    """The real path of a folder in one of them, or in the home, in which roots may lie nevertheless."""

    def has_place(self, root: str) -> bool:
        """Return whether a root lies where the server makes folders for work."""
        return self.workplace is not None and root != self.workplace and within(root, self.workplace)


NOTHING_KEPT = KeptFolders()


class SocketFolders(Struct, frozen=True):
    """Folders with sockets of shared servers, which commands do not enter."""

    existing: tuple[str, ...] = ()
    """The folders of sockets of this home that exist, as far as they are known."""
    usual: tuple[str, ...] = ()
    """Where sockets lie whose path in a home is too long; these folders need not exist."""


class KnownFolders(Struct, frozen=True):
    """Folders outside of the workspace that commands of every conversation are kept from changing."""

    sockets: SocketFolders = SocketFolders()
    batches: tuple[str, ...] = ()
    """Folders of batches that the home knows."""


class ProfileFacts(Struct, frozen=True, kw_only=True):
    """The facts about the places that a permission profile names, by their real paths."""

    rules: FileRules
    present: tuple[str, ...]
    """Those of the rules' places that exist."""
    first_missing: Mapping[str, str] = msgspec.field(default_factory=dict)
    """For each of the others the first folder on the way to it that does not exist, or itself."""
    links: tuple[str, ...] = ()
    """Links by which names of the profile lead to them."""
    roots: tuple[RootFacts, ...] = ()
    """Places that may be written, but for the temporary ones."""
    temporary: tuple[RootFacts, ...] = ()
    matched: tuple[str, ...] = ()
    """Places that patterns hide."""
    problem: str | None = None
    """Why that is not known."""
    aliases: tuple[str, ...] = ()
    """Other paths of what is denied, by a second mount."""
    top: tuple[str, ...] = ()
    """The folders of the disk, where all of it may be read."""


class SandboxFacts(Struct, frozen=True):
    """Findings of `inspect` for one policy."""

    home: str
    """The server's home, resolved."""
    roots: tuple[RootFacts, ...] = ()
    temporary: tuple[RootFacts, ...] = ()
    """/tmp and the client's $TMPDIR, as far as the policy grants them."""
    others: tuple[str, ...] = ()
    """Protected paths of the server's other conversations."""
    home_links: tuple[str, ...] = ()
    """The links by which the home is reached: the next server will follow them, too."""
    sockets: tuple[str, ...] = ()
    """The folders outside of the home in which shared servers have their sockets."""
    reserved: tuple[str, ...] = ()
    """Folders in which a shared server may come to have its socket; they need not be there."""
    kept: KeptFolders = NOTHING_KEPT
    superuser: bool = False
    profile: ProfileFacts | None = None
    programs: tuple[str, ...] = ()
    """The folders with the interpreter and the programs of this server."""


class FileView(Struct, frozen=True, kw_only=True):
    """Files that a command sees of the disk, by a permission profile."""

    visible: tuple[str, ...] | None = None
    """The only places that there are, as real paths; None: the whole disk."""
    links: tuple[str, ...] = ()
    """Links outside of them that lead there, and are there as well."""
    hidden: tuple[str, ...] = ()
    """Existing files and folders that can neither be read nor written."""
    reopened: tuple[str, ...] = ()
    """Places inside hidden or read-only ones that may be written."""
    programs: tuple[str, ...] = ()
    """Folders that programs of this server see also where they are hidden or absent."""
    shows_programs: bool = False
    """The command is such a program."""
    rules: FileRules | None = None
    """The rules of a permission profile, for what the server reads in the name of the model."""
    profile: str = ""
    """The name of that profile."""
    subtracts: bool = False
    """It hides something in what may be read, or lets something only be read in what may be written: only mounts hold
    that."""
    refused: str | None = None
    """Why no command may run under it."""

    def may_read(self, real: str) -> bool:
        """Return whether commands may read what is at a real path."""
        return self.rules is None or self.rules.may_read(real)

    @property
    def hides(self) -> bool:
        """Whether it keeps files from being read, which no approval changes."""
        return self.rules is not None and (self.visible is not None or self.subtracts or bool(self.hidden))


WHOLE_DISK_VIEW = FileView()


class SandboxPlan(Struct, frozen=True):
    """Rights of one command. None in place of a plan means full access."""

    writable_roots: tuple[str, ...] = ()
    protected: tuple[str, ...] = ()
    """Read-only inside the roots, existing paths."""
    reserved: tuple[str, ...] = ()
    """Protected names directly below a root that may be missing: they are read-only or cannot be created."""
    indispensable: tuple[str, ...] = ()
    """Those of the protected paths without which the command may not run: a sandbox that does not hold them is none."""
    pinned: tuple[str, ...] = ()
    """The directories between a root and a protected path in it. They are writable, but cannot be renamed or removed,
    because the protected path would move with them.
    """
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
    notices: tuple[str, ...] = ()
    """Parts of the policy that cannot be granted, in words for the user."""
    view: FileView = msgspec.field(default_factory=lambda: WHOLE_DISK_VIEW)

    @property
    def written(self) -> tuple[str, ...]:
        """All places that may be written."""
        return (*self.writable_roots, *self.view.reopened)


def for_own_program(plan: SandboxPlan | None, *places: str) -> SandboxPlan | None:
    """Return the plan for a program of this server that works for the model, and reads `places` besides."""
    if plan is None or plan.view.rules is None:
        return plan
    view = replace(plan.view, programs=(*plan.view.programs, *places), shows_programs=True)
    return replace(plan, view=view)


class SandboxState(Struct, frozen=True):
    """Confinement that works on this machine."""

    level: Literal["full", "degraded", "none"]
    reason: str = ""
    """Why the level is not full, for the user; empty if it is."""
    gaps: tuple[str, ...] = ()
    """What the degraded level does not cover, for the user."""
    landlock_abi: int = 0

    @property
    def warning(self) -> str | None:
        """Return the warning for the client; None if everything is covered."""
        if self.level == "full":
            return None
        if self.level == "none":
            return str(remedies.no_sandbox(self.reason))
        return str(remedies.weaker_sandbox(self.reason, "; ".join(self.gaps)))


class SandboxLayer(Struct, frozen=True):
    """One part of the sandbox, tried alone as far as it can be."""

    name: str
    problem: str | None
    """Why it does not hold; None if it does."""


def workspace_plan(policy: WorkspaceWrite, facts: SandboxFacts) -> SandboxPlan:
    named = (*facts.roots, *facts.temporary)
    refused = {root: reason for root in named if (reason := refusal(root, named, facts))}
    direct = [root for root in named if root.real is not None and root not in refused]
    writable = tuple(outermost([root.real for root in direct if root.real]))
    # Where a link that may be changed led into a root, nothing is granted that was not granted anyway.
    covered = [root for root, why in refused.items() if why == BY_LINK and inside(root.real, writable)]
    kept = [*direct, *covered]
    protected = {
        *facts.others,
        *facts.home_links,
        *facts.sockets,
        *facts.kept.folders,
        *(path for root in kept for path in root.protected),
    }
    protected = {path for path in protected if inside(path, writable) and not below(path, protected)}
    if inside(facts.home, writable):
        protected.add(facts.home)
    names = {os.path.join(root.real, name) for root in facts.roots for name in PROTECTED_NAMES if root.real}
    names |= {folder for folder in facts.reserved if folder not in writable}
    # Also those that exist: what was seen may be another command's empty directory, which is about to go.
    reserved = {name for name in names if inside(name, writable) and not below(name, protected)}
    read_only = protected | reserved
    pinned = {place for path in read_only for place in between(path, writable)}
    return SandboxPlan(
        writable_roots=writable,
        protected=tuple(sorted(protected)),
        reserved=tuple(sorted(reserved)),
        indispensable=tuple(path for path in facts.kept.folders if inside(path, writable)),
        pinned=tuple(sorted(place for place in pinned - read_only if not below(place, read_only))),
        home=facts.home,
        network=policy.network_access,
        private_temp=not any(root in kept for root in facts.temporary),
        foreign_files=facts.superuser and any(root.foreign for root in direct if root.real in writable),
        notices=notices(named, {root: why for root, why in refused.items() if root not in covered}, kept),
    )


def refusal(root: RootFacts, named: tuple[RootFacts, ...], facts: SandboxFacts) -> str | None:
    """Say why a root is not granted by itself; None where it is, or where there is nothing."""
    if root.replaced is not None:
        return REPLACED
    if root.real is None:
        return None
    if root.real == "/":
        return WHOLE_DISK
    if not facts.kept.has_place(root.real):
        if within(root.real, facts.home):
            return IN_HOME
        if inside(root.real, facts.kept.folders):
            return KEPT
    if root.real in facts.sockets:
        return HAS_SOCKET
    # The next server that is given these names would follow what commands of this one put there.
    changeable = [
        other.real
        for other in named
        if other.real not in (None, "/", root.real) and not within(other.real, facts.home)
    ]
    by_link = any(inside(os.path.dirname(link), changeable) for link in root.links)
    return BY_LINK if by_link or root.by_changeable_link else None


def notices(
    named: tuple[RootFacts, ...], refused: dict[RootFacts, str], kept: list[RootFacts]
) -> tuple[str, ...]:
    notices = [
        f"Commands may not write in {root.replaced or root.path}: {refused[root]}."
        for root in named
        if root in refused
    ]
    notices += [f"{root.real}: {INCOMPLETE}." for root in kept if root.incomplete]
    return tuple(dict.fromkeys(notices))


def outermost(paths: Iterable[str]) -> list[str]:
    """Return those that lie in no other, each once."""
    distinct = list(dict.fromkeys(paths))
    return [path for path in distinct if not any(path != other and within(path, other) for other in distinct)]


def inside(path: str | None, roots: Iterable[str | None]) -> bool:
    return path is not None and any(root is not None and within(path, root) for root in roots)


def below(path: str, others: Set[str]) -> bool:
    return any(folder in others for folder in above(path))


def between(path: str, roots: Iterable[str]) -> list[str]:
    """Return the directories above `path` that lie in a root and are not the root itself."""
    root = next(root for root in roots if within(path, root))
    return [folder for folder in above(path) if len(folder) > len(root)]


def above(path: str) -> list[str]:
    """Return the directories above it, the nearest first, but for the whole disk."""
    found = []
    while path := path.rpartition("/")[0]:
        found.append(path)
    return found
