"""Reads from the disk what a plan depends on: where roots and links lead, which names exist.

It looks, and changes nothing. Every answer may be out of date a moment later; the plan is made so that
what a confined command can change meanwhile does not widen it.
"""

from __future__ import annotations

import os
import stat

from app_server.core.sandbox.plan import FENCED_NAMES, RootFacts, SandboxFacts
from protocol.policy import SandboxPolicy, WorkspaceWrite

MAX_NESTED = 256
"""So many directories of a root are looked at for repositories of their own."""

MAX_POINTER = 4096
"""A `gitdir:` file longer than this is not git's."""


def inspect(policy: SandboxPolicy, cwd: str, *, home: str, tmpdir: str | None) -> SandboxFacts:
    """The facts for a policy whose first root is `cwd`."""
    superuser = os.geteuid() == 0
    if not isinstance(policy, WorkspaceWrite):
        return SandboxFacts(home=os.path.realpath(home), superuser=superuser)
    roots = [cwd, *(os.path.join(cwd, root) for root in policy.writable_roots)]
    temporary = [] if policy.exclude_slash_tmp else ["/tmp"]
    if tmpdir and os.path.isabs(tmpdir) and not policy.exclude_tmpdir_env_var:
        temporary.append(tmpdir)
    return SandboxFacts(
        home=os.path.realpath(home),
        roots=tuple(_root(os.path.normpath(root)) for root in dict.fromkeys(roots)),
        temporary=tuple(_root(os.path.normpath(root)) for root in dict.fromkeys(temporary)),
        superuser=superuser,
    )


def _root(path: str) -> RootFacts:
    try:
        real = os.path.realpath(path, strict=True)
        status = os.stat(real)
    except OSError:
        return RootFacts(path, None)
    if not stat.S_ISDIR(status.st_mode):
        return RootFacts(path, None)
    return RootFacts(path, real, tuple(_fences(real)), status.st_uid != os.geteuid())


def _fences(root: str) -> list[str]:
    found: list[str] = []
    for name in FENCED_NAMES:
        found += _protected(os.path.join(root, name))
    for pointer in _nested(root):
        found += _protected(pointer)
    return list(dict.fromkeys(found))


def _protected(path: str) -> list[str]:
    """The path itself, every link on the way from it, and where git's own pointers lead; nothing where it
    is missing.
    """
    if not os.path.lexists(path):
        return []
    found = [path]
    real = os.path.realpath(path)
    if real != path:
        found.append(real)
    if os.path.basename(path) == ".git" and os.path.isfile(real):
        found += [place for place in _git_places(real) if os.path.lexists(place)]
    return found


def _git_places(pointer: str) -> list[str]:
    """The directories that a `.git` file leads to: that of the worktree or submodule, and the one it
    shares.
    """
    text = _first_line(pointer)
    if not text.startswith("gitdir:"):
        return []
    place = os.path.realpath(os.path.join(os.path.dirname(pointer), text.removeprefix("gitdir:").strip()))
    common = _first_line(os.path.join(place, "commondir")).strip()
    return [place, os.path.realpath(os.path.join(place, common))] if common else [place]


def _first_line(path: str) -> str:
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return ""
        with open(path, errors="surrogateescape") as file:
            return file.read(MAX_POINTER).partition("\n")[0]
    except (OSError, ValueError):
        return ""


def _nested(root: str) -> list[str]:
    """The `.git` of the directories directly below `root`, no links, up to a limit. Every command pays for this."""
    found: list[str] = []
    looked = 0
    try:
        with os.scandir(root) as entries:
            for entry in entries:
                if looked == MAX_NESTED:
                    break
                if entry.is_dir(follow_symlinks=False) and entry.name not in FENCED_NAMES:
                    looked += 1
                    pointer = f"{entry.path}/.git"
                    if _exists(pointer):
                        found.append(pointer)
    except OSError:
        pass
    return found


def _exists(path: str) -> bool:
    """lexists without the exception that it makes and drops for each name that is missing."""
    if os.access in os.supports_follow_symlinks:
        return os.access(path, os.F_OK, follow_symlinks=False)
    return os.path.lexists(path)
