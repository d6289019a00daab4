"""Programs that we add to the PATH of commands: `apply_patch`, which models call from scripts.

They are small shell scripts in a folder of the server's home, one of those where no confined command may write. The
folder's name is a hash of the scripts, so that servers of different versions can share a home.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shlex
import stat
import tempfile
from collections.abc import Mapping

from msgspec import Struct

from app_server.core.errors import SHORTAGES
from app_server.core.patch.patch_plan import program_command


def own_folder(home: str, *names: str) -> str:
    """Return a folder in the home, the last of these names inside one another, created if needed. Raises OSError,
    PermissionError if others than the server's user can write to it.
    """
    folder = os.path.realpath(home)
    for name in names:
        folder = os.path.join(folder, name)
        if not os.path.lexists(folder):
            os.mkdir(folder, 0o700)
        status = os.lstat(folder)
        if not stat.S_ISDIR(status.st_mode) or status.st_mode & 0o022:
            raise PermissionError(f"{folder} is no directory of the server's alone")
    return folder


def install_file(place: str, content: bytes, mode: int) -> None:
    """Writes the file unless it is there with that content and mode. Raises OSError."""
    if _holds(place, content, mode):
        return
    fd, temporary = tempfile.mkstemp(dir=os.path.dirname(place))
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(content)
            os.fchmod(fd, mode)
        os.replace(temporary, place)
    except OSError:
        os.unlink(temporary)
        raise


def _holds(place: str, content: bytes, mode: int) -> bool:
    try:
        fd = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    with open(fd, "rb", closefd=True) as file:
        found = os.fstat(fd).st_mode
        right = stat.S_ISREG(found) and stat.S_IMODE(found) == mode
        return right and file.read(len(content) + 1) == content


log = logging.getLogger(__name__)

NAMES = ("apply_patch", "applypatch")


class Programs(Struct, eq=False):
    """The folder, which is created for the first command."""

    python: str
    home: str
    _folder: str | None = None
    _failed: bool = False

    def added_to(self, environment: Mapping[str, str]) -> Mapping[str, str]:
        """Return the environment with our programs first on its PATH. An environment without a PATH is returned as it
        is: the shell's default applies then.
        """
        path = environment.get("PATH")
        folder = self._ready() if path else None
        if folder is None:
            return environment
        return {**environment, "PATH": f"{folder}{os.pathsep}{path}"}

    def _ready(self) -> str | None:
        if self._folder is not None and all(_runs(f"{self._folder}/{name}") for name in NAMES):
            return self._folder
        if self._failed:
            return None
        try:
            self._folder = install(self.home, self.python)
        except OSError as error:
            # Commands still run: the server recognises most patches without the program.
            log.warning("no apply_patch for commands: %s", error)
            self._folder, self._failed = None, error.errno not in SHORTAGES
        return self._folder


def install(home: str, python: str) -> str:
    """Return the folder with the programs, creating it if needed. Raises OSError."""
    content = script(python).encode()
    folder = own_folder(home, "tmp", f"programs-{hashlib.sha256(content).hexdigest()[:16]}")
    for name in NAMES:
        install_file(os.path.join(folder, name), content, 0o755)
    return folder


def script(python: str) -> str:
    """Return the text of each program."""
    return f'#!/bin/sh\nexec {shlex.join(program_command(python))} "$@"\n'


def _runs(place: str) -> bool:
    return os.access(place, os.X_OK)
