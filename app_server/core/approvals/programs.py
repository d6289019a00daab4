"""Whether a program's name resolves to a file that no command and no repository can have planted.

A harmless name proves nothing if the PATH searches the workspace first, as the PATH of an activated virtual environment
does. Reads the disk.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping

from app_server.core.real_path import real_path
from app_server.core.sandbox.plan import within
from protocol.records import dataclass

SHELLS = frozenset({"bash", "sh", "zsh"})
STARTUP_FILES = (
    *(".bash_profile", ".bash_login", ".profile", ".bashrc"),
    *(".zshenv", ".zprofile", ".zlogin"),
)
"""Files in the user's home that a shell may run before its script."""

MOST_FOLDERS = 256
"""Entries of a PATH. A longer one is not searched, and its programs are not trusted."""


@dataclass(frozen=True, slots=True)
class ProgramSearch:
    """Resolves program names as one command will."""

    environment: Mapping[str, str]
    """The environment of the command."""
    exposed: tuple[str, ...]
    """Real directories in which commands or a repository may have created files."""

    def trusts(self, program: str) -> bool:
        """`program` is a bare name or an absolute path. A name that is not on the PATH is trusted: it runs nothing."""
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
        """Whether its path, or the target of its links, lies in an exposed directory."""
        return any(within(place, folder) for place in _places(path) for folder in self.exposed)


def _anybody_may_replace(path: str) -> bool:
    """Whether the file or a directory above it is writable for everybody. A directory with the sticky bit, such as
    /tmp, is not: there `exposed` decides.
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
    """The absolute path as given, and its real path."""
    return {"/" + os.path.normpath(path).lstrip("/"), real_path(path)}


def exposed_folders(cwd: str, writable: Iterable[str]) -> tuple[str, ...]:
    """The working directory, the repositories that contain it, and the writable directories, as real paths; `writable`
    are real paths already. `/` is left out: no program could be trusted otherwise.
    """
    folder = real_path(cwd)
    found = {folder, *writable}
    parent = folder
    while parent != "/":
        if os.path.lexists(os.path.join(parent, ".git")):
            found.add(parent)
        parent = os.path.dirname(parent)
    return tuple(sorted(found - {"/"}))
