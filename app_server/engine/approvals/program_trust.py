"""Checks on this disk whether a command that looks harmless is harmless. Reads the disk.

A harmless name proves nothing if the PATH searches the workspace first, as the PATH of an activated virtual environment
does. So `ProgramSearch` trusts only files that no command and no repository can have put there. A git command that only
reads may still execute programs that the repository configures, unless `git_is_plain`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

from msgspec import Struct

from app_server.engine.approvals.shell import git_commands
from app_server.engine.support.real_path import real_path, within
from app_server.engine.support.rooted_fs import RootDir

IsPlain = Callable[[Callable[[str], bytes | None]], bool]


SHELLS = frozenset({"bash", "sh", "zsh"})
STARTUP_FILES = (
    *(".bash_profile", ".bash_login", ".profile", ".bashrc"),
    *(".zshenv", ".zprofile", ".zlogin"),
)
"""Files in the user's home that a shell may run before its script."""

MOST_FOLDERS = 256
"""Maximum number of entries of a PATH. A longer one is not searched, and its programs are not trusted."""


class ProgramSearch(Struct, frozen=True):
    """Resolves program names as one command will."""

    environment: Mapping[str, str]
    """Environment of the command."""
    exposed: tuple[str, ...]
    """Real directories in which commands or a repository may have created files."""

    def trusts(self, program: str) -> bool:
        """Return whether no command and no repository can have put a program there. `program` is a bare name or an
        absolute path. A name that is not on the PATH is trusted: it runs nothing.
        """
        if os.path.basename(program) in SHELLS and not self._trusts_startup():
            return False
        if "/" in program:
            return os.path.isabs(program) and self._out_of_reach(program)
        folders = self.environment.get("PATH", "").split(":")
        if len(folders) > MOST_FOLDERS:
            return False
        for folder in folders:
            # A relative or empty entry, or `~`, resolves against a directory that a script may change.
            if not os.path.isabs(folder):
                return False
            found = os.path.join(folder, program)
            if os.path.isfile(found):
                if not self._out_of_reach(found):
                    return False
                if os.access(found, os.X_OK):
                    return True
        return True

    def _trusts_startup(self) -> bool:
        homes = [self.environment.get("HOME", ""), self.environment.get("ZDOTDIR") or "/"]
        if not all(os.path.isabs(home) for home in homes):
            return False
        files = [os.path.join(home, name) for home in homes for name in STARTUP_FILES]
        return not any(os.path.lexists(file) and self._is_exposed(file) for file in files)

    def _out_of_reach(self, path: str) -> bool:
        return not self._is_exposed(path) and not _anybody_may_replace(path)

    def _is_exposed(self, path: str) -> bool:
        """Return whether its path, or the target of its links, lies in an exposed directory."""
        return any(within(place, folder) for place in _places(path) for folder in self.exposed)


def _anybody_may_replace(path: str) -> bool:
    """Return whether every user may write the file or a directory above it. A directory with the sticky bit, such as
    /tmp, does not count: there `exposed` decides.
    """
    for place in _places(path):
        while True:
            try:
                if os.stat(place).st_mode & (stat.S_IWOTH | stat.S_ISVTX) == stat.S_IWOTH:
                    return True
            except OSError:
                return True
            if place == "/":
                break
            place = os.path.dirname(place)
    return False


def _places(path: str) -> set[str]:
    """Return the absolute path as given, and its real path."""
    return {"/" + os.path.normpath(path).lstrip("/"), real_path(path)}


def exposed_folders(cwd: str, writable: Iterable[str]) -> tuple[str, ...]:
    """Return the working directory, the repositories that contain it, and the writable directories, as real paths.
    `writable` are real paths already. `/` is left out: otherwise no program could be trusted.
    """
    folder = real_path(cwd)
    found = {folder, *writable}
    parent = folder
    while parent != "/":
        if os.path.lexists(os.path.join(parent, ".git")):
            found.add(parent)
        parent = os.path.dirname(parent)
    return tuple(sorted(found - {"/"}))


MAX_GIT_FILE_BYTES = 32 * 1024 * 1024
"""Maximum size of one file below `.git`, in bytes. A very large repository has a larger index and counts as not
plain.
"""


def git_is_plain(cwd: str) -> bool:
    folder = Path(real_path(cwd))
    try:
        for root in (folder, *folder.parents):
            if os.path.lexists(root / "HEAD"):
                # For git the folder itself would be a bare repository with its own configuration.
                return False
            git = root / ".git"
            if os.path.lexists(git):
                with RootDir(git) as opened:
                    return git_commands.is_plain_repository(partial(_read, opened))
    except (
        OSError
    ):  # also if `.git` is no folder, or if a path that should be a regular file is of another kind
        pass
    return False


def _read(git: RootDir, name: str) -> bytes | None:
    try:
        return git.read(name, MAX_GIT_FILE_BYTES)
    except FileNotFoundError:
        return None
