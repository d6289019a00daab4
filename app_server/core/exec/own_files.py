"""Folders of the server's home where no confined command may write, and files in them for commands to read."""

from __future__ import annotations

import os
import stat
import tempfile


def own_folder(home: str, *names: str) -> str:
    """A folder in the home, inside one another as they are named, created if needed. Raises OSError, PermissionError
    if others than the server's user can write to it."""
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
