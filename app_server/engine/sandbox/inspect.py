"""Reads the facts on which a plan depends from the disk: the roots and the paths to protect in them.

The module changes nothing. Every fact may be out of date a moment later; the plan is made so that no change by a
confined command can widen it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from functools import partial

from app_server.engine.sandbox.inspect_profile import inspect_profile
from app_server.engine.sandbox.launcher.placeholder_dirs import is_placeholder
from app_server.engine.sandbox.plan import (
    NOTHING_KEPT,
    USUAL_ROOTS,
    KeptFolders,
    KnownFolders,
    RootFacts,
    RootOptions,
    SandboxFacts,
)
from app_server.engine.sandbox.roots import ConversationRoots, NamedRoot, exists, resolve
from app_server.engine.support.engine_errors import raise_shortage
from app_server.engine.support.real_path import real_path, within
from app_server.engine.support.rooted_fs import RootDir
from app_server_protocol.policy import FolderName, PermissionProfile, SandboxPolicy, WorkspaceWrite
from app_server_protocol.values import replace

NOTHING_KNOWN = KnownFolders()

MAX_POINTER = 4096
"""Maximum size of a file with `gitdir:`, in bytes. A longer one is not git's."""

MAX_OTHERS = 64
"""Maximum number of other conversations' roots whose protected paths each command keeps."""

EXECUTED = ("hooks", "config")
"""Names of files that make git execute programs. If they are links, their targets are outside of the protected
directory.
"""


def inspect(
    policy: SandboxPolicy,
    cwd: str,
    *,
    home: str,
    roots: ConversationRoots,
    options: RootOptions = USUAL_ROOTS,
    known: KnownFolders = NOTHING_KNOWN,
    kept: KeptFolders = NOTHING_KEPT,
    programs: Callable[[], tuple[str, ...]] = tuple,
) -> SandboxFacts:
    """Return the facts for a policy whose first root is `cwd`. `known` are the folders of shared servers and batches;
    `programs` returns the folders with this server's own programs.
    """
    tmpdir, protected_folders = options.tmpdir, options.protected_folders
    superuser = os.geteuid() == 0
    resolved = resolve(os.path.abspath(home))
    real_home = resolved.real if resolved is not None else real_path(home)
    profile, named, temporary = None, tuple[RootFacts, ...](), tuple[RootFacts, ...]()
    read_root = partial(_root, roots=roots, names=protected_folders)
    match policy:
        case PermissionProfile():
            profile = inspect_profile(policy, cwd, tmpdir, roots, read_root)
            named, temporary = profile.roots, profile.temporary
        case WorkspaceWrite():
            named = tuple(read_root(root) for root in roots.roots(policy, cwd))
            temporary = tuple(read_root(root, deep=False) for root in roots.temporary(policy, cwd, tmpdir))
        case _:
            roots.learn(policy, cwd, tmpdir)
            return SandboxFacts(home=real_home, superuser=superuser)
    return SandboxFacts(
        home=real_home,
        home_links=resolved.links if resolved is not None else (),
        sockets=tuple(
            dict.fromkeys(real_path(folder) for folder in known.sockets.existing if _is_kept(folder))
        ),
        reserved=tuple(dict.fromkeys(map(real_path, known.sockets.usual))),
        roots=named,
        temporary=temporary,
        others=_others(roots, (*named, *temporary), known.batches, kept, protected_folders),
        kept=kept,
        superuser=superuser,
        profile=profile,
        programs=() if profile is None else (*programs(), *_resolver(policy)),
        protected_folders=protected_folders,
    )


RESOLVER = "/etc/resolv.conf"


def _resolver(policy: SandboxPolicy) -> tuple[str, ...]:
    """Return the file with the addresses of name servers, if commands have the network. On many machines a link in
    `/etc` leads to it.
    """
    real = real_path(RESOLVER)
    wanted = isinstance(policy, PermissionProfile) and policy.network and os.path.isfile(real)
    return (real,) if wanted else ()


def _is_kept(folder: str) -> bool:
    """Return whether it is a folder, and not a placeholder."""
    return os.path.isdir(folder) and not is_placeholder(folder)


def _others(
    roots: ConversationRoots,
    named: tuple[RootFacts, ...],
    batches: tuple[str, ...],
    kept: KeptFolders,
    names: tuple[FolderName, ...],
) -> tuple[str, ...]:
    """Return the protected paths of other conversations, and the folders of batches."""
    return (
        *_protected_of_others(roots, [root.real for root in named if root.real], names),
        *(folder for folder in batches if folder not in kept.folders),
    )


def _root(
    root: NamedRoot, *, roots: ConversationRoots, names: tuple[FolderName, ...], deep: bool = True
) -> RootFacts:
    if root.resolved is None:
        return RootFacts(root.name, None)
    real = root.resolved.real
    try:
        if os.path.realpath(real) != real:
            return RootFacts(root.name, None, replaced=real)
        status = os.stat(real)
    except (OSError, ValueError):
        return RootFacts(root.name, None)
    if not stat.S_ISDIR(status.st_mode):
        return RootFacts(root.name, None)
    facts = RootFacts(
        root.name,
        real,
        foreign=status.st_uid != os.geteuid(),
        links=root.resolved.links,
        by_changeable_link=root.by_changeable_link,
    )
    if real == "/":  # the root of the disk is not granted
        return facts
    repositories = roots.repositories(real, deep=deep)
    paths = [
        *_names(real, names),
        *(place for pointer in repositories.pointers() for place in _protected(pointer)),
    ]
    return replace(facts, protected=tuple(dict.fromkeys(paths)), incomplete=repositories.incomplete)


def _protected_of_others(
    roots: ConversationRoots, named: list[str], names: tuple[FolderName, ...]
) -> tuple[str, ...]:
    """Return the protected paths of the server's other conversations whose roots are inside this one's. Placeholders of
    these conversations are excluded: they are removed soon, and until then no folder above them could be renamed.
    """
    others = [
        real
        for real in roots.server.known()
        if real not in named and any(within(real, root) for root in named) and real_path(real) == real
    ]
    fences = (fence for real in sorted(others)[:MAX_OTHERS] for fence in _names(real, names))
    return tuple(fence for fence in fences if not is_placeholder(fence))


def _names(root: str, names: tuple[FolderName, ...]) -> list[str]:
    return [place for name in names for place in _protected(f"{root}/{name}")]


def _protected(path: str) -> list[str]:
    """Return the path, every link on the way, and the targets of git's own pointers; nothing if it is missing. The
    folder of `path` is a real path.
    """
    try:
        kind = os.lstat(path).st_mode
    except OSError:
        return []
    found = _followed(path) or [path] if stat.S_ISLNK(kind) else [path]
    if path.endswith("/.git"):
        places = found[-1:] if stat.S_ISDIR(kind) or os.path.isdir(found[-1]) else _git_places(found[-1])
        if places != [path]:
            led = [followed for place in places for followed in _followed(place)]
            # A directory that contains the pointer is no git directory. Protecting it would protect everything in it.
            found += [place for place in led if not within(path, place)]
        for executed in [f"{place}/{name}" for place in places for name in EXECUTED]:
            if os.path.islink(executed):
                found += _followed(executed)
    return found if len(found) == 1 else [place for place in dict.fromkeys(found) if exists(place)]


def _followed(path: str) -> list[str]:
    """Return the links on the way to `path`, and its target last. Return nothing if the target is missing."""
    resolved = resolve(path)
    return [] if resolved is None else [*resolved.links, resolved.real]


def _git_places(pointer: str) -> list[str]:
    """Return the directories to which a `.git` file points: that of the worktree or submodule, and the common one."""
    text = _first_line(pointer)
    if not text.startswith("gitdir:"):
        return []
    place = os.path.join(os.path.dirname(pointer), text.removeprefix("gitdir:").strip())
    common = _first_line(os.path.join(place, "commondir")).strip()
    return [place, os.path.join(place, common)] if common else [place]


def _first_line(path: str) -> str:
    """Return the first line of a regular file, without blocking on any other kind of file. Raises SandboxShortage,
    since its target must not stay unprotected.
    """
    try:
        with RootDir("/") as disk, disk.opened(path, follow_links=True) as (descriptor, _):
            return os.fsdecode(os.read(descriptor, MAX_POINTER).partition(b"\n")[0])
    except OSError as error:
        raise_shortage(error, f"{path} cannot be read")
        return ""
