"""Makes a sandbox plan from a policy and the facts of the disk: what a command may write, reach and read. Pure.

`inspect` finds the facts; the launcher enforces the plan on Linux, and on macOS sandbox-exec by a profile, whose text
is made here: paths are passed as parameters, so no name can break it open, and after `(deny default)` it has the least
that shells and build tools need. Every path in a plan is absolute and canonical. A root that cannot be resolved is left
out: an unresolved path is never granted. No root of a plan lies inside another one.
"""

from __future__ import annotations

import os.path
from collections.abc import Iterable, Set
from typing import Literal

from msgspec import Struct

from app_server.beneath import SECRET_FILES
from app_server.core import remedies
from app_server.core.real_path import within
from app_server_protocol.policy import DangerFullAccess, ReadOnly, SandboxPolicy, WorkspaceWrite

PROTECTED_NAMES = (".git", ".codex", ".agents")
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


def make_plan(policy: SandboxPolicy, facts: SandboxFacts) -> SandboxPlan | None:
    """Return the plan for `policy`; None for full access."""
    match policy:
        case DangerFullAccess():
            return None
        case ReadOnly():
            return SandboxPlan(home=facts.home)
        case WorkspaceWrite():
            return _workspace_plan(policy, facts)


def _workspace_plan(policy: WorkspaceWrite, facts: SandboxFacts) -> SandboxPlan:
    named = (*facts.roots, *facts.temporary)
    refused = {root: reason for root in named if (reason := _refusal(root, named, facts))}
    direct = [root for root in named if root.real is not None and root not in refused]
    writable = tuple(_outermost([root.real for root in direct if root.real]))
    # Where a link that may be changed led into a root, nothing is granted that was not granted anyway.
    covered = [root for root, why in refused.items() if why == BY_LINK and _inside(root.real, writable)]
    kept = [*direct, *covered]
    protected = {
        *facts.others,
        *facts.home_links,
        *facts.sockets,
        *facts.kept.folders,
        *(path for root in kept for path in root.protected),
    }
    protected = {path for path in protected if _inside(path, writable) and not _below(path, protected)}
    if _inside(facts.home, writable):
        protected.add(facts.home)
    names = {os.path.join(root.real, name) for root in facts.roots for name in PROTECTED_NAMES if root.real}
    names |= {folder for folder in facts.reserved if folder not in writable}
    # Also those that exist: what was seen may be another command's empty directory, which is about to go.
    reserved = {name for name in names if _inside(name, writable) and not _below(name, protected)}
    read_only = protected | reserved
    pinned = {place for path in read_only for place in _between(path, writable)}
    return SandboxPlan(
        writable_roots=writable,
        protected=tuple(sorted(protected)),
        reserved=tuple(sorted(reserved)),
        indispensable=tuple(path for path in facts.kept.folders if _inside(path, writable)),
        pinned=tuple(sorted(place for place in pinned - read_only if not _below(place, read_only))),
        home=facts.home,
        network=policy.network_access,
        private_temp=not any(root in kept for root in facts.temporary),
        foreign_files=facts.superuser and any(root.foreign for root in direct if root.real in writable),
        notices=_notices(named, {root: why for root, why in refused.items() if root not in covered}, kept),
    )


def _refusal(root: RootFacts, named: tuple[RootFacts, ...], facts: SandboxFacts) -> str | None:
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
        if _inside(root.real, facts.kept.folders):
            return KEPT
    if root.real in facts.sockets:
        return HAS_SOCKET
    # The next server that is given these names would follow what commands of this one put there.
    changeable = [
        other.real
        for other in named
        if other.real not in (None, "/", root.real) and not within(other.real, facts.home)
    ]
    by_link = any(_inside(os.path.dirname(link), changeable) for link in root.links)
    return BY_LINK if by_link or root.by_changeable_link else None


def _notices(
    named: tuple[RootFacts, ...], refused: dict[RootFacts, str], kept: list[RootFacts]
) -> tuple[str, ...]:
    notices = [
        f"Commands may not write in {root.replaced or root.path}: {refused[root]}."
        for root in named
        if root in refused
    ]
    notices += [f"{root.real}: {INCOMPLETE}." for root in kept if root.incomplete]
    return tuple(dict.fromkeys(notices))


def _outermost(paths: Iterable[str]) -> list[str]:
    """Return those that lie in no other, each once."""
    distinct = list(dict.fromkeys(paths))
    return [path for path in distinct if not any(path != other and within(path, other) for other in distinct)]


def _inside(path: str | None, roots: Iterable[str | None]) -> bool:
    return path is not None and any(root is not None and within(path, root) for root in roots)


def _below(path: str, others: Set[str]) -> bool:
    return any(folder in others for folder in _above(path))


def _between(path: str, roots: Iterable[str]) -> list[str]:
    """Return the directories above `path` that lie in a root and are not the root itself."""
    root = next(root for root in roots if within(path, root))
    return [folder for folder in _above(path) if len(folder) > len(root)]


def _above(path: str) -> list[str]:
    """Return the directories above it, the nearest first, but for the whole disk."""
    found = []
    while path := path.rpartition("/")[0]:
        found.append(path)
    return found


SANDBOX_EXEC = "/usr/bin/sandbox-exec"
"""By its absolute path: PATH could lead elsewhere."""

BASE = """\
(version 1)
(deny default)
(allow process-exec)
(allow process-fork)
(allow signal (target same-sandbox))
(allow process-info* (target same-sandbox))
(allow file-read*)
(allow file-test-existence)
(allow file-write-data
  (require-all (path "/dev/null") (vnode-type CHARACTER-DEVICE)))
(allow file-ioctl (literal "/dev/null"))
(allow pseudo-tty)
(allow file-read* file-write* file-ioctl (literal "/dev/ptmx"))
(allow file-read* file-write* file-ioctl
  (require-all (regex #"^/dev/ttys[0-9]+$") (extension "com.apple.sandbox.pty")))
(allow sysctl-read)
(allow ipc-posix-sem)
(allow mach-lookup (global-name "com.apple.system.opendirectoryd.libinfo"))
(allow user-preference-read)
"""

NETWORK = """\
(allow network-outbound)
(allow network-inbound)
(allow system-socket)
(allow mach-lookup
  (global-name "com.apple.SecurityServer")
  (global-name "com.apple.networkd")
  (global-name "com.apple.ocspd")
  (global-name "com.apple.trustd.agent")
  (global-name "com.apple.SystemConfiguration.DNSConfiguration")
  (global-name "com.apple.SystemConfiguration.configd"))
"""


def profile(plan: SandboxPlan) -> tuple[str, dict[str, str]]:
    """Return the profile's text and its parameters. Later rules win over earlier ones, so denials come last."""
    parameters: dict[str, str] = {}

    def name(kind: str, path: str) -> str:
        key = f"{kind}_{len(parameters)}"
        parameters[key] = path
        return f'(param "{key}")'

    text = [BASE]
    if plan.network:
        text.append(NETWORK)
    text += [f"(allow file-write* (subpath {name('ROOT', root)}))\n" for root in plan.writable_roots]
    for path in dict.fromkeys((*plan.protected, *plan.reserved)):
        # As itself and as a folder: so a name that is missing cannot come into being either.
        key = name("FENCE", path)
        text.append(f"(deny file-write* (literal {key}) (subpath {key}))\n")
    for place in plan.pinned:
        text.append(f"(deny file-write-unlink (literal {name('PINNED', place)}))\n")  # nor renamed
    secrets = [name("SECRET", f"{plan.home}/{secret}") for secret in plan.secrets]
    text += [f"(deny file-read* file-write* (literal {key}) (subpath {key}))\n" for key in secrets]
    return "".join(text), parameters


def wrap(argv: tuple[str, ...], plan: SandboxPlan) -> tuple[str, ...]:
    """Return the command line that runs `argv` under the profile of `plan`."""
    text, parameters = profile(plan)
    defined = [f"-D{key}={value}" for key, value in parameters.items()]
    return (SANDBOX_EXEC, "-p", text, *defined, "--", *argv)
