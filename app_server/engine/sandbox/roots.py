"""The real paths of writable roots, and the git repositories in them. Both are found once and kept for a conversation's
life. The module reads the disk, and changes nothing.

A client repeats the names with each turn, and commands may have changed the files at these names in between. So a name
is resolved when the conversation first gets it, before any command of that turn runs. The real path is kept, and used
from then on without following links. The server remembers which paths commands of any of its conversations could write:
a link found there does not show where the user wanted to go.

A survey looks for repositories in the upper levels of a root once, before the conversation's first command. Its
findings are remembered, so that no number of new folders can displace them. Later only the folders directly in the root
are examined, some of them with each command.
"""

from __future__ import annotations

import os
import os.path
import stat
from collections import deque
from collections.abc import Iterator, Mapping

from msgspec import Struct

from app_server.engine.config.file_rules import named_places, split_pattern
from app_server.engine.sandbox.launcher import placeholder_dirs
from app_server.engine.support.engine_errors import raise_shortage
from app_server.engine.support.real_path import within
from app_server_protocol.policy import PermissionProfile, SandboxPolicy, WorkspaceWrite, writable_names

MAX_LINKS = 40
"""Maximum number of links in a path, the kernel's value; more is a loop."""


class ResolvedPath(Struct, frozen=True):
    real: str
    """Absolute path without links. A missing part is kept as it is named."""
    links: tuple[str, ...] = ()
    """Real path of every link that was followed. Anyone who can change one of them can lead the path elsewhere."""


def resolve(path: str) -> ResolvedPath | None:
    """Follow all links of a path. Return None if it is not absolute, cannot be followed to its end, or is not a valid
    path.
    """
    if not path.startswith("/"):
        return None
    real, links, left = "", list[str](), path.split("/")[::-1]
    while left:
        name = left.pop()
        if name in ("", "."):
            continue
        if name == "..":
            real = real.rpartition("/")[0]
            continue
        here = f"{real}/{name}"
        try:
            target = os.readlink(here) if stat.S_ISLNK(os.lstat(here).st_mode) else None
        except (FileNotFoundError, NotADirectoryError):
            target = None
        except (OSError, ValueError):
            return None
        if target is None:
            real = here
            continue
        links.append(here)
        if len(links) > MAX_LINKS:
            return None
        if target.startswith("/"):
            real = ""
        left += target.split("/")[::-1]
    return ResolvedPath(real or "/", tuple(links))


def exists(path: str) -> bool:
    """Return the result of `lexists`, without the exception that `lexists` raises and handles for each missing name."""
    if os.access in os.supports_follow_symlinks:
        return os.access(path, os.F_OK, follow_symlinks=False)
    return os.path.lexists(path)


SURVEY_LEVELS = 2
"""Depth of the survey: `root/a/b/.git` is found. Deeper repositories are usually downloads of a build, which the build
must be able to remove.
"""

SURVEY_ENTRIES = 8192
"""Maximum number of folder entries that a survey examines, those directly in the root first."""

MAX_ENTRIES = 4096
"""Maximum number of entries of one folder that are examined."""

MAX_LOOKS = 256
"""Maximum number of folders that are examined with each command: new ones and, in turn, the others."""

MAX_REPOSITORIES = 256
"""Maximum number of repositories of a root that are protected; each costs a command two mounts or more."""


class NestedRepositories:
    """The `.git` of each repository that was found inside one root."""

    def __init__(self, root: str, levels: int = SURVEY_LEVELS) -> None:
        self._root, self._levels = root, levels
        self._found: dict[str, None] = {}
        self._seen: dict[str, None] = {}
        """Folders directly in the root. The one whose last examination is the oldest comes first."""
        self._surveyed = False
        self.incomplete = False
        """Whether the root has more entries than are examined: there may be unknown repositories."""

    def pointers(self) -> list[str]:
        """Return the existing ones of all pointers that were ever found, after looking for more. Raises
        SandboxShortage; the next call then does the work that this one should have done.
        """
        if self._surveyed:
            self._look_again()
        else:
            self._survey()
        there = [pointer for pointer in self._found if self._is_there(pointer)]
        self.incomplete = self.incomplete or len(there) > MAX_REPOSITORIES
        return there[:MAX_REPOSITORIES]

    def _is_there(self, pointer: str) -> bool:
        """Return whether it still exists, and is not reached by a link that has replaced a folder."""
        if not exists(pointer):
            return False
        folder = os.path.dirname(pointer)
        while folder != self._root:
            if os.path.islink(folder):
                return False
            folder = os.path.dirname(folder)
        return True

    def _survey(self) -> None:
        waiting = deque([(self._root, 1)])
        left = SURVEY_ENTRIES
        while waiting and left > 0:
            folder, level = waiting.popleft()
            folders, looked_at = self._folders(folder, min(left, MAX_ENTRIES))
            left -= looked_at
            for inner in folders:
                if level == 1:
                    self._seen[inner] = None
                self._look_into(inner)
                if level < self._levels:
                    waiting.append((inner, level + 1))
        self._surveyed = True

    def _look_again(self) -> None:
        now = dict.fromkeys(self._folders(self._root, MAX_ENTRIES)[0])
        if len(now) <= MAX_LOOKS:
            self._seen = now
            for folder in now:
                self._look_into(folder)
            return
        new = [folder for folder in now if folder not in self._seen]
        self._seen = {folder: None for folder in self._seen if folder in now}
        turns = MAX_LOOKS // 2
        for folder in (*new[:turns], *list(self._seen)[:turns]):
            self._look_into(folder)
            self._seen.pop(folder, None)
            self._seen[folder] = None

    def _look_into(self, folder: str) -> None:
        pointer = f"{folder}/.git"
        # A placeholder, which keeps another conversation's command from creating a `.git`, is no repository.
        if exists(pointer) and not placeholder_dirs.is_placeholder(pointer):
            self._found[pointer] = None

    def _folders(self, folder: str, most: int) -> tuple[list[str], int]:
        """Return the folders in a folder, without links, and the number of examined entries. `.git` is not searched for
        repositories.
        """
        found: list[str] = []
        number = 0
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if number == most:
                        self.incomplete = self.incomplete or folder == self._root
                        break
                    number += 1
                    if entry.name != ".git" and entry.is_dir(follow_symlinks=False):
                        found.append(entry.path)
        except OSError as error:
            raise_shortage(error, f"{folder} cannot be looked through")
        return found, number


SLASH_TMP = "/tmp"


class NamedRoot(Struct, frozen=True):
    """A root by the name that the client gave, and its real path at that time."""

    name: str
    resolved: ResolvedPath | None
    """Real path and links. None if the name led nowhere."""
    by_changeable_link: bool = False
    """Whether a link on the way was in a folder that commands had been allowed to write."""


class ServerRoots:
    """Roots that all conversations of one server share."""

    def __init__(self) -> None:
        self.written: set[str] = set()
        """Real paths of all roots that commands were ever granted."""
        self.open_ones: set[ConversationRoots] = set()
        """Roots of the open conversations."""

    def open(self) -> ConversationRoots:
        """Return the roots of a new conversation, which has to close them."""
        roots = ConversationRoots(self)
        self.open_ones.add(roots)
        return roots

    def known(self) -> set[str]:
        """Return the real paths of the roots that the clients of all open conversations named."""
        return set().union(*(roots.known() for roots in self.open_ones))

    def once(self) -> ConversationRoots:
        """Return roots for a command outside of any conversation."""
        return ConversationRoots(self, lasting=False)


def _profile_names(profile: PermissionProfile, cwd: str, tmpdir: str | None) -> Iterator[str]:
    """Yield the absolute names in a profile. For a pattern, it is the folder before its wildcards."""
    given = tmpdir if tmpdir and os.path.isabs(tmpdir) else None
    for rule, name in named_places(profile, cwd, given):
        yield split_pattern(name)[0] if rule.is_pattern else name


class ConversationRoots:
    """The roots of one conversation."""

    def __init__(self, server: ServerRoots, *, lasting: bool = True) -> None:
        self.server = server
        self._lasting = lasting
        self._named: dict[str, NamedRoot] = {}
        self._temporary: set[str] = set()
        """Names of temporary directories, which are not roots that a client named."""
        self._repositories: dict[str, NestedRepositories] = {}
        self._only_named: set[str] = set()
        """Names in profiles that give no right to write."""

    def close(self) -> None:
        self.server.open_ones.discard(self)

    def learn(self, policy: SandboxPolicy, cwd: str, tmpdir: str | None = None) -> None:
        """Resolve names that are new. Callers call it as soon as the client has given the names."""
        for name in (*self._names(policy, cwd), *self._temporary_names(tmpdir)):
            if name not in self._named:
                self._named[name] = self._resolve(name)
        if isinstance(policy, PermissionProfile):
            given = {os.path.normpath(name) for name in (cwd, *writable_names(policy, cwd))}
            self._only_named = (self._only_named | set(self._names(policy, cwd))) - given

    def roots(self, policy: WorkspaceWrite, cwd: str) -> tuple[NamedRoot, ...]:
        """Return the roots of a policy, the working directory first."""
        self.learn(policy, cwd)
        return tuple(self._named[name] for name in dict.fromkeys(self._names(policy, cwd)))

    def temporary(self, policy: WorkspaceWrite, cwd: str, tmpdir: str | None = None) -> tuple[NamedRoot, ...]:
        """Return /tmp and the client's $TMPDIR, as far as the policy grants them."""
        self.learn(policy, cwd, tmpdir)
        names = [] if policy.exclude_slash_tmp else [SLASH_TMP]
        if tmpdir is not None and os.path.isabs(tmpdir) and not policy.exclude_tmpdir_env_var:
            names.append(os.path.normpath(tmpdir))
        return tuple(self._named[name] for name in dict.fromkeys(names))

    def of_profile(self, profile: PermissionProfile, cwd: str, tmpdir: str | None) -> Mapping[str, NamedRoot]:
        """Return, for each name of a profile, the root with its real path at the time when the name was given."""
        self.learn(profile, cwd, tmpdir)
        return {name: self._named[name] for name in _profile_names(profile, cwd, tmpdir)}

    def real(self, cwd: str) -> str:
        """Return the real path of a working directory at the time when the conversation was given it. Return the name
        if it is not known.
        """
        named = self._named.get(os.path.normpath(cwd))
        return named.resolved.real if named is not None and named.resolved is not None else cwd

    def known(self) -> set[str]:
        """Return the real paths of the roots that the client named as writable."""
        without = self._temporary | self._only_named
        return {
            root.resolved.real
            for name, root in self._named.items()
            if root.resolved is not None and name not in without
        }

    def repositories(self, real: str, *, deep: bool) -> NestedRepositories:
        """Return the repositories inside one root, as far as they are known."""
        if real not in self._repositories:
            levels = SURVEY_LEVELS if deep and self._lasting else 1
            self._repositories[real] = NestedRepositories(real, levels)
        return self._repositories[real]

    def _names(self, policy: SandboxPolicy, cwd: str) -> list[str]:
        more = policy.writable_roots if isinstance(policy, WorkspaceWrite) else ()
        if isinstance(policy, PermissionProfile):
            more = tuple(_profile_names(policy, cwd, None))
        return [os.path.normpath(os.path.join(cwd, name)) for name in ("", *more)]

    def _temporary_names(self, tmpdir: str | None) -> list[str]:
        given = [tmpdir] if tmpdir and os.path.isabs(tmpdir) else []
        names = [os.path.normpath(name) for name in (SLASH_TMP, *given)]
        self._temporary.update(name for name in names if name not in self._named)
        return names

    def _resolve(self, name: str) -> NamedRoot:
        resolved = resolve(name)
        if resolved is None:
            return NamedRoot(name, None)
        folders = [os.path.dirname(link) for link in resolved.links]
        changeable = any(within(folder, root) for folder in folders for root in self.server.written)
        return NamedRoot(name, resolved, changeable)
