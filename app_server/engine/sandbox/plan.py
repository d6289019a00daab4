"""Makes a sandbox plan from a policy and the facts of the disk: a command's rights to write, reach and read. Pure.

`inspect` finds the facts. The launcher enforces the plan on Linux, sandbox-exec on macOS. Every path in a plan is
absolute and canonical. A root that cannot be resolved is left out: an unresolved path is never granted. No root of a
plan lies inside another one.
"""

from __future__ import annotations

import os.path
from collections.abc import Iterable, Mapping, Set
from typing import Literal

import msgspec
from msgspec import Struct

from app_server.engine.config.file_rules import FileRules
from app_server.engine.support import user_messages
from app_server.engine.support.real_path import within
from app_server.engine.support.rooted_fs import SECRET_FILES
from app_server_protocol.policy import PROTECTED_FOLDERS, FolderName, WorkspaceWrite
from app_server_protocol.values import replace

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
    """Path as written in the policy: absolute, not resolved."""
    real: str | None
    """Real path at the time when the conversation got it. None if there is no directory now."""
    protected: tuple[str, ...] = ()
    """Existing paths that must stay unchanged: protected names, the targets of links among them, git's real
    directories.
    """
    foreign: bool = False
    """Whether its owner is another user than the server's."""
    links: tuple[str, ...] = ()
    """Real paths of the links by which the path was reached."""
    by_changeable_link: bool = False
    """Whether one of the links was in a folder that commands of this server could write."""
    replaced: str | None = None
    """The real path, if a part of it is a link now. Otherwise None."""
    incomplete: bool = False
    """Whether there may be repositories inside that are not protected."""
    is_file: bool = False
    """Whether it is a single file, which a permission profile lets commands write."""


class KeptFolders(Struct, frozen=True):
    """Folders outside of the home whose files the server trusts like those of the home."""

    folders: tuple[str, ...] = ()
    """Real paths of the folders. No command can change anything in them, whatever root contains them."""
    workplace: str | None = None
    """Real path of a folder in one of them, or in the home, in which roots may lie nevertheless. None if there is
    none.
    """

    def has_place(self, root: str) -> bool:
        """Return whether a root is in the folder in which the server makes folders for work."""
        return self.workplace is not None and root != self.workplace and within(root, self.workplace)


NOTHING_KEPT = KeptFolders()


class SocketFolders(Struct, frozen=True):
    """Folders with sockets of shared servers, which commands cannot enter."""

    existing: tuple[str, ...] = ()
    """Existing folders of sockets of this home, as far as they are known."""
    usual: tuple[str, ...] = ()
    """Folders for sockets whose path in a home would be too long. These folders need not exist."""


class KnownFolders(Struct, frozen=True):
    """Folders outside of the workspace that are protected from commands of every conversation."""

    sockets: SocketFolders = SocketFolders()
    batches: tuple[str, ...] = ()
    """Folders of batches that the home has recorded."""


class ProfileFacts(Struct, frozen=True, kw_only=True):
    """Facts about the paths that a permission profile names, by their real paths."""

    rules: FileRules
    present: tuple[str, ...]
    """Existing paths among those of the rules."""
    first_missing: Mapping[str, str] = msgspec.field(default_factory=dict)
    """First missing folder on the way to each missing path, or the path itself, by path."""
    links: tuple[str, ...] = ()
    """Links by which names of the profile lead to the paths."""
    roots: tuple[RootFacts, ...] = ()
    """Writable paths, except the temporary ones."""
    temporary: tuple[RootFacts, ...] = ()
    matched: tuple[str, ...] = ()
    """Paths that patterns hide."""
    problem: str | None = None
    """Reason why the matches are not known. None if they are known."""
    aliases: tuple[str, ...] = ()
    """Other paths of denied paths, by a second mount."""
    top: tuple[str, ...] = ()
    """Top-level folders of the disk. Empty unless the whole disk may be read."""


class RootOptions(Struct, frozen=True):
    """Properties of the writable roots of a thread that are no part of its policy."""

    tmpdir: str | None = None
    """$TMPDIR of the client for whom the command is run. None if it has none."""
    protected_folders: tuple[FolderName, ...] = PROTECTED_FOLDERS
    """Names that are read-only in each root."""


USUAL_ROOTS = RootOptions()


class SandboxFacts(Struct, frozen=True):
    """Facts that `inspect` found for one policy."""

    home: str
    """Real path of the server's home."""
    roots: tuple[RootFacts, ...] = ()
    temporary: tuple[RootFacts, ...] = ()
    """/tmp and the client's $TMPDIR, as far as the policy grants them."""
    others: tuple[str, ...] = ()
    """Protected paths of the server's other conversations."""
    home_links: tuple[str, ...] = ()
    """Links by which the home is reached: the next server will follow them, too."""
    sockets: tuple[str, ...] = ()
    """Folders outside of the home in which shared servers have their sockets."""
    reserved: tuple[str, ...] = ()
    """Folders in which a shared server may put its socket later; they need not exist."""
    kept: KeptFolders = NOTHING_KEPT
    superuser: bool = False
    profile: ProfileFacts | None = None
    programs: tuple[str, ...] = ()
    """Folders with the interpreter and the programs of this server."""
    protected_folders: tuple[FolderName, ...] = PROTECTED_FOLDERS
    """Names that are read-only in each root."""


class FileView(Struct, frozen=True, kw_only=True):
    """The part of the disk that a command sees, by a permission profile."""

    visible: tuple[str, ...] | None = None
    """Real paths of the only visible files and folders. None if the whole disk is visible."""
    links: tuple[str, ...] = ()
    """Links outside of the visible paths that lead to them, and are visible as well."""
    hidden: tuple[str, ...] = ()
    """Existing files and folders that can be neither read nor written."""
    reopened: tuple[str, ...] = ()
    """Writable paths inside hidden or read-only ones."""
    programs: tuple[str, ...] = ()
    """Folders that programs of this server see even if they are hidden or absent."""
    shows_programs: bool = False
    """Whether the command is such a program."""
    rules: FileRules | None = None
    """Rules of a permission profile, for reads of the server for the model. None if the policy is not a profile."""
    profile: str = ""
    """Name of the profile."""
    subtracts: bool = False
    """Whether it hides something readable, or makes something writable read-only: only mounts can enforce that."""
    refused: str | None = None
    """Reason why no command may run under it. None if commands may run."""

    def may_read(self, real: str) -> bool:
        """Return whether commands may read the file at a real path."""
        return self.rules is None or self.rules.may_read(real)

    @property
    def hides(self) -> bool:
        """Whether it hides files from reads. No approval changes that."""
        return self.rules is not None and (self.visible is not None or self.subtracts or bool(self.hidden))


WHOLE_DISK_VIEW = FileView()


class SandboxPlan(Struct, frozen=True):
    """Rights of one command. A missing plan (None) means full access."""

    writable_roots: tuple[str, ...] = ()
    protected: tuple[str, ...] = ()
    """Existing paths inside the roots that are read-only."""
    reserved: tuple[str, ...] = ()
    """Protected names directly below a root that may be missing. They are read-only, or cannot be created."""
    indispensable: tuple[str, ...] = ()
    """Protected paths without which the command may not run: a sandbox that does not enforce them is not acceptable."""
    pinned: tuple[str, ...] = ()
    """Directories between a root and a protected path in it. They are writable, but cannot be renamed or removed,
    because the protected path would move with them.
    """
    home: str = ""
    secrets: tuple[str, ...] = SECRET_FILES
    """Names in `home` that cannot be read."""
    network: bool = False
    private_temp: bool = True
    """Whether no temporary directory of the host is writable: the command then gets one of its own."""
    foreign_files: bool = False
    """Whether the server is root and a root belongs to another user. Then the command keeps the file capabilities,
    inside the roots.
    """
    notices: tuple[str, ...] = ()
    """Sentences for the user about parts of the policy that cannot be granted."""
    view: FileView = msgspec.field(default_factory=lambda: WHOLE_DISK_VIEW)

    @property
    def written(self) -> tuple[str, ...]:
        """All writable paths."""
        return (*self.writable_roots, *self.view.reopened)


def for_own_program(plan: SandboxPlan | None, *places: str) -> SandboxPlan | None:
    """Return the plan for a program of this server that works for the model and reads `places` in addition."""
    if plan is None or plan.view.rules is None:
        return plan
    view = replace(plan.view, programs=(*plan.view.programs, *places), shows_programs=True)
    return replace(plan, view=view)


class SandboxState(Struct, frozen=True):
    """Confinement that works on this machine."""

    level: Literal["full", "degraded", "none"]
    reason: str = ""
    """Reason why the level is not full, for the user. Empty if it is full."""
    gaps: tuple[str, ...] = ()
    """Descriptions, for the user, of what the degraded level does not cover."""
    landlock_abi: int = 0

    @property
    def warning(self) -> str | None:
        """The warning for the client. None if everything is covered."""
        if self.level == "full":
            return None
        if self.level == "none":
            return str(user_messages.no_sandbox(self.reason))
        return str(user_messages.weaker_sandbox(self.reason, "; ".join(self.gaps)))


class SandboxLayer(Struct, frozen=True):
    """One layer of the sandbox, tried alone as far as that is possible."""

    name: str
    problem: str | None
    """Reason why it does not hold. None if it holds."""


def workspace_plan(policy: WorkspaceWrite, facts: SandboxFacts) -> SandboxPlan:
    named = (*facts.roots, *facts.temporary)
    refused = {root: reason for root in named if (reason := refusal(root, named, facts))}
    direct = [root for root in named if root.real is not None and root not in refused]
    writable = tuple(outermost([root.real for root in direct if root.real]))
    # If a changeable link led into a root, the root that it named is granted anyway, as a part of that root.
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
    names = {
        os.path.join(root.real, name) for root in facts.roots for name in facts.protected_folders if root.real
    }
    names |= {folder for folder in facts.reserved if folder not in writable}
    # Existing ones are included: an existing name may be another command's placeholder, which is about to be removed.
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
    """Return the reason why a root is not granted by itself. None if it is granted, or if nothing exists there."""
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
    # The next server that is given these names would follow a link that commands of this one put there.
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
    """Return the paths that lie in no other path, each once."""
    distinct = list(dict.fromkeys(paths))
    return [path for path in distinct if not any(path != other and within(path, other) for other in distinct)]


def inside(path: str | None, roots: Iterable[str | None]) -> bool:
    return path is not None and any(root is not None and within(path, root) for root in roots)


def below(path: str, others: Set[str]) -> bool:
    return any(folder in others for folder in above(path))


def between(path: str, roots: Iterable[str]) -> list[str]:
    """Return the directories above `path` that are inside a root and are not the root itself."""
    root = next(root for root in roots if within(path, root))
    return [folder for folder in above(path) if len(folder) > len(root)]


def above(path: str) -> list[str]:
    """Return the directories above `path`, the nearest first, without the root of the disk."""
    found = []
    while path := path.rpartition("/")[0]:
        found.append(path)
    return found
