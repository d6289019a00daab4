"""Makes one folder that only the user can access. Fast to import."""

from __future__ import annotations

import os

PRIVATE = 0o700
OF_OTHERS = 0o077


class UnsafeFolder(Exception):
    """A folder cannot be made private: it is a link or another user's. The text is a sentence for the user."""


def make_private_folder(path: str) -> None:
    """Make a folder that only the user can access, or remove the rights of others to it. Raises UnsafeFolder if it is a
    link or another user's.
    """
    try:
        os.mkdir(path, PRIVATE)
    except FileExistsError:
        pass
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except NotADirectoryError:
        what = "a link" if os.path.islink(path) else "no folder"
        raise UnsafeFolder(f"{path} is {what}") from None
    except OSError:
        if os.path.islink(path):
            raise UnsafeFolder(f"{path} is a link") from None
        raise
    try:
        found = os.fstat(fd)
        if found.st_uid != os.geteuid():
            raise UnsafeFolder(f"{path} belongs to another user")
        if found.st_mode & OF_OTHERS:
            os.fchmod(fd, PRIVATE)
    finally:
        os.close(fd)
