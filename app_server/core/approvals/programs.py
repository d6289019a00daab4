"""Whether a program's name stands for a file that no command and no repository can have put there.

A name on the list of harmless programs says nothing where the PATH leads into the workspace first, as that of an
activated environment does. Reads the disk.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping

from app_server.core.sandbox.plan import within
from protocol.records import dataclass

SHELLS = frozenset({"bash", "sh", "zsh"})
STARTUP_FILES = (
    *(".bash_profile", ".bash_login", ".profile", ".bashrc"),
    *(".zshenv", ".zprofile", ".zlogin"),
)
"""What a shell may read from the user's home before it comes to its script."""

MOST_FOLDERS = 256
"""Of a PATH. One that is longer is not searched."""


@dataclass(frozen=True, slots=True)
class ProgramSearch:
    """Finds programs as one command will."""

    environment: Mapping[str, str]
    """That of the command."""
    exposed: tuple[str, ...]
    """Real directories whose files commands or a repository may have made."""

    def trusts(self, program: str) -> bool:
        """`program` is a bare name or an absolute path. A name that is found nowhere runs nothing."""
        if os.path.basename(program) in SHELLS and not self._trusts_startup():
            return False
        if "/" in program:
            return os.path.isabs(program) and self._out_of_reach(program)
        folders = self.environment.get("PATH", "").split(":")
        if len(folders) > MOST_FOLDERS:
            return False
        for folder in folders:
            # Relative, empty or `~`: the working directory, or the one that a script goes to, decides.
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
        """By its name, or by where links lead from there."""
        return any(within(place, folder) for place in _places(path) for folder in self.exposed)


def _anybody_may_replace(path: str) -> bool:
    """The file, or a directory on the way to it, is writable for everybody. One like /tmp, where each may only touch
    what is his own, counts where commands may write to it.
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
    """The absolute path as it is named, and where links lead from there."""
    return {"/" + os.path.normpath(path).lstrip("/"), os.path.realpath(path)}


def exposed_folders(cwd: str, writable: Iterable[str]) -> tuple[str, ...]:
    """The working directory, the repositories around it, and what commands may write to, as real paths; `writable` are
    real ones. The whole disk is no such directory: then no program could be trusted.
    """
    folder = os.path.realpath(cwd)
    found = {folder, *writable}
    parent = folder
    while parent != "/":
        if os.path.lexists(os.path.join(parent, ".git")):
            found.add(parent)
        parent = os.path.dirname(parent)
    return tuple(sorted(found - {"/"}))
