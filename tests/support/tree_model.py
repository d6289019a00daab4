"""Model of the real places that the commands of two conversations may write, independent of the server's own code.

A root is the real path of its name when the conversation was given it. It is granted as long as there is a directory
that is reached over no link, unless the name led over a link that commands may have created. The contents of protected
names in the roots stay unchanged.
"""

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.support.trees import FENCED, Entry, Named, below

PLACEHOLDER_NS = 318_398_706 * 1_000_000_000
"""Time stamp that marks an empty directory as a placeholder of a name while commands run, in nanoseconds."""

LOCK_READINGS = 5
"""Number of readings of the lock list. Beside a process that takes and releases 300 locks, 54 of 2,000 readings lacked
one of five locks, and no more than two in a row did.
"""

LEVELS = 2
"""Depth inside a root up to which repositories are protected."""


def inside(path: str, root: str) -> bool:
    return path == root or path.startswith(root + "/")


def in_any(path: str, roots: set[str]) -> bool:
    return any(inside(path, root) for root in roots)


def plain(path: str) -> bool:
    """Return whether the path is a directory that is reached over no link."""
    return os.path.realpath(path) == path and os.path.isdir(path)


def links_of(path: str) -> list[str]:
    """Return the folders of all links on the way."""
    found: list[str] = []
    real, left = "", [part for part in path.split("/") if part][::-1]
    while left:
        part = left.pop()
        if part == "..":
            real = os.path.dirname(real)
        elif part not in ("", "."):
            here = f"{real}/{part}"
            if os.path.islink(here) and len(found) < 40:
                found.append(real)
                target = os.readlink(here)
                real = "" if target.startswith("/") else real
                left += target.split("/")[::-1]
            else:
                real = here
    return found


@dataclass(frozen=True)
class Root:
    real: str
    links: tuple[str, ...]
    """Folders of the links over which the root was reached."""
    doubtful: bool
    """Whether commands could write one of these folders."""


@dataclass(frozen=True)
class Grant:
    """Rights of one command at the time of its plan."""

    writable: frozenset[str]
    named: frozenset[str]
    """Roots that were named and existed: protected names in them must not be created, either."""
    protected: Mapping[str, Entry]
    """Protected names that existed, and their entries."""


@dataclass
class Conversation:
    named: Named
    known: dict[str, Root] = field(default_factory=dict)
    repositories: dict[str, set[str]] = field(default_factory=dict)
    """Repositories that existed when a root was first planned with, by root."""


class Model:
    """Model of one server with two conversations."""

    def __init__(self, top: str, home: str) -> None:
        self._top, self._home = top, home
        self.conversations: list[Conversation] = []
        self._written: set[str] = set()

    def names(self, who: int, named: Named, *, anew: bool) -> None:
        if who == len(self.conversations):
            self.conversations.append(Conversation(named))
        elif anew:
            self.conversations[who] = Conversation(named)
        one = self.conversations[who]
        one.named = named
        for name in (named.cwd, *named.more):
            path = f"{self._top}/{name}"
            if path not in one.known:
                links = tuple(links_of(path))
                doubtful = any(in_any(folder, self._written) for folder in links)
                one.known[path] = Root(os.path.realpath(path), links, doubtful)

    def held(self, seen: Mapping[str, Entry], locked: set[int]) -> list[str]:
        """Return the placeholders: empty directories that keep names in roots from being created, wherever commands
        have moved them. The server holds a lock on one while it needs it. A copy that a command made is left until the
        next command needs the name. `locked` has the inodes that were locked before the tree was read.
        """
        found = [path for path in seen if os.path.basename(path) in FENCED]
        return [path for path in found if _is_placeholder(seen, path) and seen[path][1] in locked]

    def grant(self, who: int, seen: Mapping[str, Entry], *, writes: bool) -> Grant:
        """Return the rights of a command that is planned now."""
        if not writes:
            return Grant(frozenset(), frozenset(), {})
        one = self.conversations[who]
        named = [one.known[f"{self._top}/{name}"] for name in (one.named.cwd, *one.named.more)]
        there = [root for root in named if plain(root.real)]
        writable = {root.real for root in there if not self._refused(root, there)}
        self._written |= writable
        roots = {root.real for root in there if in_any(root.real, writable)}
        # A place that is only reached by a doubtful link is covered by another root, which has names of its own.
        return Grant(frozenset(writable), frozenset(roots), self._protected(who, roots, writable, seen))

    def _refused(self, root: Root, there: list[Root]) -> bool:
        others = {
            other.real for other in there if other.real != root.real and not inside(other.real, self._home)
        }
        by_link = any(in_any(folder, others) for folder in root.links)
        return root.doubtful or by_link or inside(root.real, self._home)

    def _protected(
        self, who: int, roots: set[str], writable: set[str], seen: Mapping[str, Entry]
    ) -> dict[str, Entry]:
        one = self.conversations[who]
        for root in roots & writable:
            one.repositories.setdefault(root, _repositories(root))
        others = {
            root.real for other in self.conversations for root in other.known.values() if plain(root.real)
        }
        pointers = {f"{root}/{name}" for root in roots | others for name in FENCED}
        pointers |= {each for root in roots for each in one.repositories.get(root, ())}
        return {
            path: seen[path]
            for path in pointers
            if in_any(path, writable) and path in seen and plain(os.path.dirname(path))
            if not _is_placeholder(seen, path)
        }


def _repositories(root: str) -> set[str]:
    found, folders = set(), [root]
    for _ in range(LEVELS):
        inner = [
            each.path
            for folder in folders
            for each in os.scandir(folder)
            if each.is_dir(follow_symlinks=False) and each.name != ".git"
        ]
        found |= {f"{folder}/.git" for folder in inner if os.path.lexists(f"{folder}/.git")}
        folders = inner
    return found


def _is_placeholder(seen: Mapping[str, Entry], path: str) -> bool:
    mode, changed_ns = seen[path][0], seen[path][6]
    assert isinstance(mode, int)
    return stat.S_ISDIR(mode) and changed_ns == PLACEHOLDER_NS and len(below(seen, path)) == 1


def locked_inodes() -> set[int]:
    """Return the inodes that any process has locked. The kernel returns the list one page at a time, so one reading may
    lack a lock while other processes on the machine release theirs.
    """
    return {inode for _ in range(LOCK_READINGS) for inode in _listed_locks()}


def _listed_locks() -> set[int]:
    with open("/proc/locks", encoding="ascii") as file:
        return {
            int(line.split("FLOCK", 1)[1].split()[3].rpartition(":")[2]) for line in file if "FLOCK" in line
        }
